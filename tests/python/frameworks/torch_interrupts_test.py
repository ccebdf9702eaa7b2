# SPDX-License-Identifier: Apache-2.0

"""A PyTorch loop that is interrupted by Ctrl-C at random moments, and entered again.

By hand, with more interrupts than the test suite has time for, from this folder:

    python torch_interrupts_test.py {whole,overlap,accumulate} [interrupts] [seed]
"""

import sys
import unittest

import torch
from interrupts import all_count_once, interrupt
from local_cluster import LocalCluster

import holdfast
import holdfast.torch


class Model(torch.nn.Module):
    """A count for each example, and layers with statistics and random numbers."""

    def __init__(self, examples):
        super().__init__()
        torch.manual_seed(1)
        self.counts = torch.nn.Parameter(torch.zeros(examples))
        self.net = torch.nn.Sequential(
            torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(), torch.nn.Linear(4, 1)
        )

    def forward(self, rows):
        return self.net(torch.randn(4, 3)).square().mean() - self.counts[rows].sum()


def train(kind, *, times, seconds, seed, examples):
    """Trains on each example once; returns the counts, the digest and the number of interrupts."""
    passes = 2 if kind == "accumulate" else 1
    with LocalCluster(2) as ps, holdfast.connect(**ps.task()) as cluster:
        model = Model(examples)
        groups = [{"params": [model.counts], "lr": float(passes)}, {"params": model.net.parameters()}]
        opt = holdfast.torch.Optimizer(
            model,
            torch.optim.SGD(groups, lr=0.01),
            steps=examples // passes,
            cluster=cluster,
            overlap=kind != "whole",
            accumulate=passes,
        )

        def loop():
            for rows in opt.batches(range(examples), 1):
                opt.zero_grad()
                loss = model(rows)
                loss.backward()
                opt.step(loss)

        struck = interrupt(loop, times=times, seconds=seconds, seed=seed)
        accepted = cluster.outcomes().accepted
        if accepted != examples // passes:
            raise AssertionError(f"{accepted} of {examples // passes} pushes were accepted")
        return model.counts.detach().numpy(), holdfast.digest(cluster.pull()), struck


class InterruptsTest(unittest.TestCase):
    def test_each_example_counts_once(self):
        for kind in ("whole", "overlap", "accumulate"):
            with self.subTest(kind):
                _, undisturbed, _ = train(kind, times=0, seconds=1, seed=1, examples=600)
                counts, digest, struck = train(
                    kind, times=100, seconds=0.003, seed=1, examples=600
                )
                all_count_once(counts)
                self.assertEqual(digest, undisturbed)
                self.assertGreater(struck, 50)


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] in ("whole", "overlap", "accumulate"):
        of_kind, wanted, with_seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
        size = max(600, 4 * wanted)
        ended, of_ended, reached = train(
            of_kind, times=wanted, seconds=0.003, seed=with_seed, examples=size
        )
        all_count_once(ended)
        of_undisturbed = train(of_kind, times=0, seconds=1, seed=1, examples=size)[1]
        if of_ended != of_undisturbed:
            raise SystemExit("the digest is not that of the undisturbed run")
        print(f"{of_kind}: each example counted once, interrupted {reached} times, seed {with_seed}")
    else:
        unittest.main()
