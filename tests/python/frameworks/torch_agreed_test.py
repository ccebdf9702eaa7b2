# SPDX-License-Identifier: Apache-2.0

"""What is local to PyTorch workers, and must be the same in all of them."""

import unittest

import torch
from local_cluster import LocalCluster

import holdfast
import holdfast.torch


def make_model(seed=1, frozen=True):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 1))
    model[0].requires_grad_(not frozen)
    model.register_buffer("mask", torch.arange(4))
    return model


class AgreedTest(unittest.TestCase):
    def setUp(self):
        ps = self.enterContext(LocalCluster(1, 2))
        self.clusters = [self.enterContext(holdfast.connect(**ps.task(i))) for i in range(2)]

    def make(self, worker, model, steps=3, **options):
        return holdfast.torch.Optimizer(
            model,
            torch.optim.SGD(model.parameters(), lr=0.1),
            steps=steps,
            cluster=self.clusters[worker],
            **options,
        )

    def test_what_is_local(self):
        self.make(0, make_model())
        with self.assertRaisesRegex(
            holdfast.Refused,
            r'task:1 has frozen parameter 0.bias float32\[4\] \w{16}, the job has float32\[4\] '
            r".* fixed seed.*agree=False",
        ):
            self.make(1, make_model(seed=2))
        # A compiled model is the same, and a worker may insist on being another.
        self.make(1, torch.compile(make_model(), backend="eager"))
        self.make(1, make_model(seed=2), agree=False)

    def test_buffers(self):
        self.make(0, make_model(frozen=False))
        other = make_model(frozen=False)
        other.mask += 1
        with self.assertRaisesRegex(holdfast.Refused, r'task:1 has buffer mask int64\[4\]'):
            self.make(1, other)

    def test_data(self):
        first = self.make(0, make_model())
        next(first.batches(range(50), 5))
        for size, length, what in ((5, 49, "dataset length 49, the job has 50"),
                                   (4, 50, "batch size 4, the job has 5")):  # fmt: skip
            with self.assertRaisesRegex(holdfast.Refused, what):
                next(self.make(1, make_model()).batches(range(length), size))
        with self.assertRaisesRegex(holdfast.Refused, "shuffle none, the job has full"):
            next(self.make(1, make_model()).batches(range(50), 5, shuffle="none"))
        next(self.make(1, make_model(), agree=False).batches(range(49), 5))


if __name__ == "__main__":
    unittest.main()
