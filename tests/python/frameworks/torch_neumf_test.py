# SPDX-License-Identifier: Apache-2.0

"""holdfast.examples.torch_neumf compared with the same model in one process, on random ratings.

If the environment variable MOVIELENS is set, the path of an ml-100k.inter, uses its ratings.
"""

import os
import tempfile
import unittest

import numpy as np
import torch
from local_cluster import LocalCluster

import holdfast
from holdfast.examples import torch_neumf_single
from holdfast.examples.movielens import Ratings, first_rows

STEPS = 50
USERS, ITEMS, RATINGS = 200, 300, 20

WORKER = """
    import json, os
    import torch
    import holdfast
    from holdfast.examples import torch_neumf
    from holdfast.examples.movielens import Ratings

    with holdfast.connect() as cluster:
        _, losses = torch_neumf.train(
            cluster, Ratings(os.environ["RATINGS"]), epochs=4, seed=3, steps=int(os.environ["STEPS"]))
    print(json.dumps(losses))
"""


def write(folder):
    """Writes ratings of 20 of 300 items by each of 200 users, who like the items of one of 4
    kinds."""
    path = os.environ.get("MOVIELENS")
    if path:
        return path
    random = np.random.default_rng(1)
    path = os.path.join(folder, "drawn.inter")
    with open(path, "w", encoding="utf-8") as file:
        file.write("user_id:token\titem_id:token\trating:float\ttimestamp:float\n")
        for user in range(1, USERS + 1):
            likes = np.where(np.arange(ITEMS) % 4 == user % 4, 10.0, 1.0)
            chosen = random.choice(ITEMS, RATINGS, replace=False, p=likes / likes.sum())
            for time, item in enumerate(random.permutation(chosen)):
                file.write(f"{user}\t{item + 1}\t3\t{time + 1000}\n")
    return path


class RatingsTest(unittest.TestCase):
    def setUp(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        self.path = os.path.join(folder, "few.inter")
        lines = ["item_id:token\tuser_id:token\trating:float\ttimestamp:float"]
        # User u rates the items u to u + 3; by its time, u + 1 is the last one.
        lines += [f"{u + i}\t{u}\t3\t{5 if i == 1 else i}" for u in (7, 2) for i in range(4)]
        # The other users are there for the random draw.
        lines += [f"{i}\t{u}\t1\t{i}" for u in (1, 3) for i in range(60 * u, 60 * u + 120)]
        with open(self.path, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")

    def test_the_last_rating_is_left_out(self):
        ratings = Ratings(self.path)
        self.assertEqual((ratings.num_users, ratings.num_items), (8, 300))
        users, items, labels = ratings.train(epochs=2, negatives=3, seed=1)
        self.assertEqual(len(labels), 2 * 4 * (3 + 3 + 2 * 119))
        self.assertEqual(labels.mean(), 0.25)
        for user, expected in ((2, [2, 4, 5]), (7, [7, 9, 10])):
            of_user = (users == user) & (labels == 1)
            self.assertEqual(sorted(items[of_user]), sorted(2 * expected))
            others = items[(users == user) & (labels == 0)]
            self.assertEqual(len(others), 2 * 3 * 3)
            self.assertFalse(set(others) & set(expected))

    def test_the_rate_of_hits(self):
        ratings = Ratings(self.path)
        asked = []

        def scores(users, items):
            asked.append((users.reshape(4, 100), items.reshape(4, 100)))
            left_out = {1: 179, 2: 3, 3: 299, 7: 8}
            return np.array([left_out[u] == i for u, i in zip(users, items, strict=True)])

        self.assertEqual(ratings.hit_rate(scores, 1), 1)
        [(users, items)] = asked
        self.assertEqual(users[:, 0].tolist(), [1, 2, 3, 7])
        self.assertEqual(items[:, 0].tolist(), [179, 3, 299, 8])
        self.assertFalse(set(items[1, 1:]) & {2, 3, 4, 5})
        # A model that cannot tell items apart gets no hits.
        self.assertEqual(ratings.hit_rate(lambda users, items: np.zeros(len(users)), 1), 0)

    def test_wrong_files(self):
        with self.assertRaises(FileNotFoundError):
            Ratings(self.path + "x")
        with open(self.path, "w", encoding="utf-8") as file:
            file.write("user_id:token\titem_id:token\ttimestamp:float\n1\t2\t3\n1\t3\t3\n")
        with self.assertRaisesRegex(ValueError, "few.inter: a user has rated all items"):
            Ratings(self.path)
        with open(self.path, "w", encoding="utf-8") as file:
            file.write("user_id:token\trating:float\n1\t2\n")
        with self.assertRaisesRegex(ValueError, "few.inter has no field item_id, timestamp"):
            Ratings(self.path)


class NeuMFTest(unittest.TestCase):
    def test_first_rows_are_those_of_the_ps(self):
        for seed in (0, 2**40 + 3):
            with LocalCluster(2) as ps, holdfast.connect(**ps.task()) as cluster:
                tables = {
                    name: holdfast.EmbeddingTable(
                        length, holdfast.Uniform(low=-0.5, high=0.25), max_rows_per_push=1
                    )
                    for name, length in (("some/rows", 8), ("others", 5))
                }
                cluster.declare(
                    {"w": holdfast.Variable(1)}, optimizer=holdfast.Sgd(learning_rate=1.0),
                    steps=1, seed=seed, tables=tables,
                )
                for name, table in tables.items():
                    np.testing.assert_array_equal(
                        cluster.pull_rows({name: np.arange(100)})[name],
                        first_rows(name, 100, table.row_length, low=-0.5, high=0.25, seed=seed),
                    )

    def train(self, path, workers):
        """The losses of the steps; each worker trains its part of the batch."""
        with LocalCluster(2, workers) as ps:
            scripts = [
                ps.run(WORKER, i, RATINGS=path, STEPS=str(STEPS), OMP_NUM_THREADS="1")
                for i in range(workers)
            ]
            losses = [script.result() for script in scripts]
            ps.await_end()
        return np.mean(losses, axis=0)

    def test_the_losses_of_one_process(self):
        torch.set_num_threads(1)
        with tempfile.TemporaryDirectory() as folder:
            path = write(folder)
            _, alone = torch_neumf_single.train(Ratings(path), epochs=4, seed=3, steps=STEPS)
            self.assertLess(alone[-1], alone[0] - 0.05)
            for workers in (1, 2):
                losses = self.train(path, workers)
                far = np.abs(losses / np.array(alone) - 1)
                print(f"{workers} workers: losses of {STEPS} steps differ by {far.max():.1e}")
                # Relative difference: with two workers, sums are in another order and rounded
                # differently.
                self.assertLess(far.max(), 1e-5)


if __name__ == "__main__":
    unittest.main()
