# SPDX-License-Identifier: Apache-2.0

"""Batches of datasets and loaders, and which processes load them."""

import multiprocessing
import random
import unittest

import numpy as np
import torch
from local_cluster import LocalCluster, await_that

import holdfast
import holdfast.torch
from holdfast.torch import _data

COUNT = 23
SIZE = 4


class Numbers:
    """A map-style dataset that does not derive from a PyTorch class."""

    def __len__(self):
        return COUNT

    def __getitem__(self, row):
        return row, torch.rand(1), random.random(), np.random.random()


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(range(COUNT))


def doubled(items):
    return torch.tensor([2 * item[0] for item in items])


def rows_of(batch, size=SIZE, seed=3):
    return holdfast.batch_indices(batch, COUNT, size, seed).tolist()


class SourceTest(unittest.TestCase):
    """Tests that need no cluster."""

    def source(self, data, size=None, *, pieces=1, own=range(1), stride=1):
        source, _ = _data.source_of(data, size, seed=3, pieces=pieces, own=own, stride=stride)
        return source

    def test_examples_follow_from_the_index(self):
        tensors = torch.utils.data.TensorDataset(torch.arange(COUNT), torch.arange(COUNT) * 10)
        for data in (tensors, torch.utils.data.DataLoader(tensors, SIZE, shuffle=True)):
            source = self.source(data, SIZE)
            for batch in (0, 5, 17, 5):  # also past the first epoch
                x, y = source.take((batch, 0))
                self.assertEqual(x.tolist(), rows_of(batch))
                self.assertEqual(y.tolist(), [10 * row for row in rows_of(batch)])
        self.assertEqual(self.source(range(COUNT), SIZE).take((2, 0)).tolist(), rows_of(2))

    def test_tensors_are_taken_as_the_loader_takes_them(self):
        tensors = torch.utils.data.TensorDataset(torch.randn(COUNT, 3), torch.arange(COUNT))
        fast = self.source(tensors, SIZE).take((1, 0))
        [slow] = torch.utils.data.DataLoader(tensors, batch_sampler=[rows_of(1)])
        self.assertEqual(type(fast), type(slow))
        torch.testing.assert_close(fast, slow, rtol=0, atol=0)

    def test_pieces_make_up_the_batch(self):
        source = self.source(range(COUNT), SIZE, pieces=3, own=range(3))
        rows = [source.take((4, piece)).tolist() for piece in range(3)]
        self.assertEqual(sum(rows, []), rows_of(4, 3 * SIZE))

    def test_uses_the_loaders_collate_fn_and_size(self):
        loader = torch.utils.data.DataLoader(Numbers(), SIZE, collate_fn=doubled)
        self.assertEqual(
            self.source(loader).take((1, 0)).tolist(), [2 * row for row in rows_of(1)]
        )

    def processes(self, context, **options):
        return torch.utils.data.DataLoader(
            Numbers(), SIZE, num_workers=2, multiprocessing_context=context, **options
        )

    def test_processes_load_the_same(self):
        # Random numbers depend only on the batch, whichever process loads it, and however often.
        inline = self.source(Numbers(), SIZE, pieces=2)
        wanted = [(2, 0), (2, 1), (4, 0), (4, 1), (6, 0)]
        # Jumps back, as after a roll-back, and ahead.
        wanted += [(4, 0), (4, 1), (6, 0), (6, 1), (40, 0), (40, 1)]
        expected = [inline.take(piece) for piece in wanted]
        for context in ("fork", "spawn"):
            with self.subTest(context):
                source = self.source(
                    self.processes(context), pieces=2, own=range(2), stride=2
                )
                for piece, known in zip(wanted, expected, strict=True):
                    torch.testing.assert_close(source.take(piece), known, rtol=0, atol=0)
                self.assertEqual(len(multiprocessing.active_children()), 2)
                source.close()
                self.assertEqual(multiprocessing.active_children(), [])

    def test_loads_ahead(self):
        source = self.source(self.processes("fork", prefetch_factor=3), stride=5)
        self.addCleanup(source.close)
        source.take((10, 0))
        # Two processes load three batches each, and one more replaces the batch that was taken.
        self.assertEqual(list(source._asked), [(10 + 5 * i, 0) for i in range(1, 7)])

    def test_what_cannot_be_handed_out_by_index(self):
        data = torch.utils.data
        numbers = Numbers()
        weighted = data.WeightedRandomSampler(torch.ones(COUNT), COUNT)
        for wrong, size, error in (
            (Stream(), SIZE, r"Stream is an IterableDataset.*batches\(range\(N\), size\)"),
            (data.DataLoader(Stream()), None, "Stream is an IterableDataset"),
            (iter([1]), SIZE, "neither a DataLoader nor a dataset"),
            (numbers, None, "a dataset needs a size"),
            (numbers, 0, "size is 0"),
            ([], SIZE, "the dataset is empty"),
            (data.DataLoader(numbers, SIZE), SIZE + 1, "size is 5, and the loader's batch_size 4"),
            (data.DataLoader(numbers, SIZE, sampler=weighted), None, "a WeightedRandomSampler"),
            (
                data.DataLoader(numbers, SIZE, sampler=data.RandomSampler(numbers, True)),
                None,
                "a RandomSampler",
            ),
            (data.DataLoader(numbers, batch_sampler=[[0]]), SIZE, "the loader has a list"),
        ):
            with self.subTest(error), self.assertRaisesRegex((TypeError, ValueError), error):
                self.source(wrong, size)


class ClusterTest(unittest.TestCase):
    def digest(self, workers, consistency=None):
        """Trains with dropout and loader processes that are forked from the process that is
        connected to the cluster."""
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.Dropout(), torch.nn.Linear(8, 1))
        ps = self.enterContext(LocalCluster(1))
        cluster = self.enterContext(holdfast.connect(**ps.task()))
        opt = holdfast.torch.Optimizer(
            model, torch.optim.SGD(model.parameters(), lr=0.1), steps=12, cluster=cluster, seed=3,
            consistency=consistency,
        )
        loader = torch.utils.data.DataLoader(Numbers(), SIZE, num_workers=workers)
        for rows, x, _, _ in opt.batches(loader):
            opt.zero_grad()
            loss = (model(x) - rows[:, None] / COUNT).square().mean()
            loss.backward()
            opt.step(loss)
        return holdfast.digest(cluster.pull())

    def test_one_digest_however_it_is_loaded(self):
        expected = self.digest(0)
        self.assertEqual(self.digest(2), expected)
        tickets = holdfast.Asynchronous()
        self.assertEqual(self.digest(2, tickets), self.digest(0, tickets))

    def test_what_is_loaded_counts_as_input(self):
        ps = self.enterContext(LocalCluster(1, flags=("--lease=1s",)))
        cluster = self.enterContext(holdfast.connect(**ps.task()))
        model = torch.nn.Linear(1, 1)
        opt = holdfast.torch.Optimizer(
            model, torch.optim.SGD(model.parameters(), lr=0.1), steps=1, cluster=cluster
        )

        def waits():
            tasks = cluster.status().everything["tasks"]
            return any(task.get("worker", {}).get("waiting_for") == "input" for task in tasks)

        class Slow(Numbers):
            def __getitem__(self, row):
                await_that(waits, "a report of the wait")
                return float(row)

        for rows in opt.batches(Slow(), 1):
            await_that(lambda: not waits(), "its end")
            with opt.waiting_for_input():
                await_that(waits, "a report of the next")
            opt.zero_grad()
            model(rows[:, None].float()).sum().backward()
            opt.step()
        self.assertEqual(cluster.status().phase, "DONE")

    def test_randomness_follows_from_the_batch(self):
        self.assertEqual(self.digest(0), self.digest(0))
        self.assertNotEqual(
            _data.seed_of(1, (2, 3), "model"), _data.seed_of(1, (3, 2), "model")
        )


if __name__ == "__main__":
    unittest.main()
