# SPDX-License-Identifier: Apache-2.0

"""Workers and ps are killed while a PyTorch script with tables trains: the bits stay the same."""

import unittest

from local_cluster import LocalCluster, await_that

# Two modules share a table; the rows of the next batch are announced in advance.
SCRIPT = """
    import json
    import numpy as np
    import torch
    import holdfast, holdfast.torch

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            words = holdfast.EmbeddingTable(
                8, holdfast.Uniform(low=-1.0, high=1.0), max_rows_per_push=256)
            self.word = holdfast.torch.Embedding("words", words)
            self.bag = holdfast.torch.EmbeddingBag("words", words, "sqrtn")
            self.out = torch.nn.Sequential(torch.nn.Dropout(), torch.nn.Linear(16, 1))

        def forward(self, x):
            return self.out(torch.cat([self.word(x[:, 0]), self.bag(x)], dim=1))

    torch.manual_seed(1)
    model = Model()
    ids = torch.randint(-(2**63), 2**63 - 1, (100,))
    x = ids[torch.randint(100, (500, 5))]
    data = torch.utils.data.TensorDataset(x, (x > 0).float().mean(dim=1, keepdim=True))
    opt = holdfast.torch.Optimizer(
        model, torch.optim.Adam(model.parameters(), lr=0.02), steps=300,
        checkpoints=holdfast.Checkpoints(every_steps=20))
    for x, y in opt.batches(data, 16, ids=lambda batch: {model.word: batch[0][:, 0],
                                                         model.bag: batch[0]}):
        opt.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        opt.step(loss)
        print("loss", float(loss), flush=True)
    with torch.no_grad():
        values = {"words": model.word(ids).numpy(), "out": model.out[1].weight.numpy()}
    print(json.dumps({"digest": holdfast.digest(values)}))
"""


class FaultsTest(unittest.TestCase):
    def train(self, num_ps=2, *, kill=None):
        """The digest of two workers; after 30 steps `kill` is called with the cluster."""
        with LocalCluster(num_ps, 2, flags=("--lease=2s",)) as ps:
            scripts = [ps.run(SCRIPT, i, OMP_NUM_THREADS="1") for i in range(2)]
            if kill is not None:
                await_that(lambda: scripts[0].output.count("loss") >= 30, "30 steps")
                kill(ps, scripts)
                self.assertLess(scripts[0].output.count("loss"), 300)
            results = [each.result() for each in scripts]
            ps.await_end()
        self.assertEqual(results[0], results[1])
        return results[0]["digest"]

    @staticmethod
    def kill_worker(ps, scripts):
        scripts[1].process.kill()
        scripts[1].process.wait()
        scripts[1] = ps.run(SCRIPT, 1, OMP_NUM_THREADS="1")

    def test_one_digest(self):
        expected = self.train()
        with self.subTest("one ps"):
            self.assertEqual(self.train(1), expected)
        for index in (0, 1):
            with self.subTest(killed=f"ps {index}"):
                got = self.train(kill=lambda ps, _, index=index: ps.kill_ps(index))
                self.assertEqual(got, expected)
        with self.subTest(killed="worker 1"):
            self.assertEqual(self.train(kill=self.kill_worker), expected)


if __name__ == "__main__":
    unittest.main()
