# SPDX-License-Identifier: Apache-2.0

"""Workers and ps are killed while a PyTorch script trains: the bits stay the same, without any
try/except."""

import re
import unittest

from local_cluster import LocalCluster, await_that

# Larger than a message, so that parts are sent during the backward pass; with dropout and batch
# norm.
SCRIPT = """
    import json, sys, time
    import torch
    import holdfast, holdfast.torch

    torch.manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 1024), torch.nn.BatchNorm1d(1024), torch.nn.ReLU(),
        torch.nn.Dropout(), torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 4))
    x = torch.randn(500, 64)
    data = torch.utils.data.TensorDataset(x, x[:, :4].argmax(dim=1))

    opt = holdfast.torch.Optimizer(
        model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), steps=30, {options}
        checkpoints=holdfast.Checkpoints(every_steps=5))
    assert opt._gradients.overlaps
    for x, y in opt.batches(data, 16):
        opt.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        opt.clip_grad_norm(1.0)
        opt.step(loss)
        print("loss", float(loss), flush=True)
    values = {{name: value.numpy() for name, value in model.state_dict().items()
               if value.dtype == torch.float32}}
    print(json.dumps({{"digest": holdfast.digest(values)}}))
"""


class FaultsTest(unittest.TestCase):
    def train(self, num_ps=2, *, options="", kill=None):
        """The digest of two workers; after 15 steps `kill` is called with the cluster."""
        script = SCRIPT.format(options=options)
        with LocalCluster(num_ps, 2, flags=("--lease=2s",)) as ps:
            scripts = [ps.run(script, i, OMP_NUM_THREADS="1") for i in range(2)]
            if kill is not None:
                await_that(lambda: scripts[0].output.count("loss") >= 15, "15 steps")
                scripts = kill(ps, scripts, script) or scripts
            results = [each.result() for each in scripts]
            ps.await_end()
        self.assertEqual(results[0], results[1])
        return results[0]["digest"]

    @staticmethod
    def kill_worker(index):
        def kill(ps, scripts, script):
            scripts = list(scripts)
            scripts[index].process.kill()
            scripts[index].process.wait()
            scripts[index] = ps.run(script, index, OMP_NUM_THREADS="1")
            return scripts

        return kill

    def test_the_script_catches_nothing(self):
        self.assertIsNone(re.search(r"\b(try|except)\b", SCRIPT))

    def test_one_digest(self):
        expected = self.train(1)
        for num_ps in (2, 4):
            with self.subTest(ps=num_ps):
                self.assertEqual(self.train(num_ps), expected)

    def test_one_digest_whatever_dies(self):
        expected = self.train()
        for index in (0, 1):
            with self.subTest(killed=f"ps {index}"):
                got = self.train(kill=lambda ps, *_, index=index: ps.kill_ps(index))
                self.assertEqual(got, expected)
        for index in (0, 1):
            with self.subTest(killed=f"worker {index}"):
                self.assertEqual(self.train(kill=self.kill_worker(index)), expected)


if __name__ == "__main__":
    unittest.main()
