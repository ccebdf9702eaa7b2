# SPDX-License-Identifier: Apache-2.0

"""Trains a perceptron on images of ten digits with PyTorch, on a cluster.

    holdfast local --ps=2 --workers=2 -- python -m holdfast.examples.torch_mnist

``torch_mnist_single.py`` is the same script in one process. There a step has 100 examples, here 100
of each worker.
"""

from __future__ import annotations

import torch
from torch.utils.data import DataLoader, TensorDataset

import holdfast.torch
from holdfast.examples.mnist import load

STEPS = 600


def main() -> None:
    """Trains, and tests the model."""
    torch.manual_seed(1)
    x, y, test_x, test_y = map(torch.from_numpy, load("digits"))
    loader = DataLoader(TensorDataset(x, y), batch_size=100, shuffle=True)
    model = torch.nn.Sequential(
        torch.nn.Linear(x.shape[1], 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
    optimizer = holdfast.torch.Optimizer(model, optimizer, steps=STEPS)
    for images, labels in optimizer.batches(loader):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        right = (model(test_x).argmax(dim=1) == test_y).float().mean().item()
    print(f"accuracy {right:.4f} on {len(test_y)} images")


if __name__ == "__main__":
    main()
