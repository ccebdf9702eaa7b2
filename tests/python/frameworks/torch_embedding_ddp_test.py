# SPDX-License-Identifier: Apache-2.0

"""Tables on a cluster with dense parameters under DDP: the same steps as in one process."""

import os
import tempfile
import unittest

import torch
from local_cluster import LocalCluster

import holdfast
import holdfast.torch

WORKERS = 2
SIZE = 16  # the batch size of a worker
STEPS = 30
IDS = 50
RATE = 0.125

FOLDER = os.path.dirname(os.path.abspath(__file__))

RANK = """
    import os
    import torch
    import holdfast.torch
    from torch_embedding_ddp_test import *

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method="file://" + os.environ["MEETING"],
                                         rank=int(os.environ["RANK"]), world_size=WORKERS)
    model = model_with(holdfast.torch.EmbeddingBag("rows", table(), "sum"))
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    dense = torch.optim.Adam(parallel.parameters(), lr=0.01)
    opt = holdfast.torch.Optimizer(model, None, steps=STEPS, seed=5)
    first = model.rows(torch.arange(IDS)[:, None])
    losses, batches = [], []
    for batch in opt.batches(range(EXAMPLES), SIZE, ids=lambda rows: {model.rows: X[rows]}):
        dense.zero_grad()
        loss = loss_of(parallel, batch)
        loss.backward()
        dense.step()
        opt.step(loss)
        losses.append(loss.item())
        batches.append(batch)
    torch.save({"first": first, "losses": losses, "batches": batches,
                "rows": model.rows(torch.arange(IDS)[:, None]),
                "dense": model.dense.state_dict()}, os.environ["RESULT"])
    opt.close()
    # Like torch_equivalence_test.py.
    torch.distributed.barrier()
    os._exit(0)
"""

EXAMPLES = 200
_generator = torch.Generator().manual_seed(1)
X = torch.randint(IDS, (EXAMPLES, 4), generator=_generator)
Y = torch.randn(EXAMPLES, 1, generator=_generator)


class Model(torch.nn.Module):
    def __init__(self, rows):
        super().__init__()
        self.rows = rows
        self.dense = torch.nn.Linear(4, 1)

    def forward(self, ids):
        return self.dense(self.rows(ids))


def table():
    return holdfast.EmbeddingTable(
        4, holdfast.Uniform(low=-1.0, high=1.0), max_rows_per_push=64,
        optimizer=holdfast.Sgd(learning_rate=RATE),
    )


def model_with(rows):
    torch.manual_seed(2)
    return Model(rows)


def loss_of(model, batch):
    return torch.nn.functional.mse_loss(model(X[batch]), Y[batch])


class DistributedDataParallelTest(unittest.TestCase):
    def ranks(self):
        """What each rank has saved."""
        path = f"{FOLDER}:{os.environ['PYTHONPATH']}"
        with LocalCluster(2, WORKERS) as ps, tempfile.TemporaryDirectory() as folder:
            results = [f"{folder}/{rank}.pt" for rank in range(WORKERS)]
            scripts = [
                ps.run(
                    RANK, rank, RANK=str(rank), MEETING=f"{folder}/meeting", RESULT=result,
                    GLOO_SOCKET_IFNAME="lo", PYTHONPATH=path,
                )
                for rank, result in enumerate(results)
            ]
            for script in scripts:
                self.assertEqual(script.wait(200), 0, script.output)
            ps.await_end()
            return [torch.load(result) for result in results]

    def test_is_one_process(self):
        ranks = self.ranks()
        model = model_with(torch.nn.EmbeddingBag(IDS, 4, mode="sum"))
        with torch.no_grad():
            model.rows.weight.copy_(ranks[0]["first"])
        dense = torch.optim.Adam(model.dense.parameters(), lr=0.01)
        rows = torch.optim.SGD(model.rows.parameters(), lr=RATE)
        for step, batches in enumerate(zip(*(rank["batches"] for rank in ranks), strict=True)):
            dense.zero_grad()
            rows.zero_grad()
            loss = loss_of(model, torch.cat(batches))
            loss.backward()
            dense.step()
            rows.step()
            theirs = sum(rank["losses"][step] for rank in ranks) / WORKERS
            self.assertAlmostEqual(theirs / loss.item(), 1, delta=1e-5)
        self.assertEqual(step + 1, STEPS)
        for rank in ranks:
            torch.testing.assert_close(rank["rows"], model.rows.weight.detach())
            torch.testing.assert_close(rank["dense"], model.dense.state_dict())


if __name__ == "__main__":
    unittest.main()
