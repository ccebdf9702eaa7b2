# SPDX-License-Identifier: Apache-2.0

"""PyTorch training loops on a cluster.

A script keeps its model, its loss and its optimizer; ``Optimizer`` replaces the optimizer, and
hands out the batches::

    opt = holdfast.torch.Optimizer(model, torch.optim.AdamW(model.parameters()), steps=3000)
    for x, y in opt.batches(dataset, 100):
        opt.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        opt.step(loss)

``Embedding`` and ``EmbeddingBag`` replace torch's; their rows are on the cluster.
"""

from holdfast.torch.embedding import Embedding, EmbeddingBag
from holdfast.torch.export import save_state_dict, state_dict
from holdfast.torch.optimizer import Optimizer

__all__ = ["Embedding", "EmbeddingBag", "Optimizer", "save_state_dict", "state_dict"]
