# SPDX-License-Identifier: Apache-2.0

"""Rows of embedding tables in JAX: the same arithmetic as in one process, whichever task dies."""

import os
import unittest
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from local_cluster import LocalCluster

import holdfast
import holdfast.jax

LIMIT = 200.0  # timeout of a script in seconds, including the import of JAX
D = 4
IDS = 30
EXAMPLES = 200
SGD = holdfast.Sgd(learning_rate=0.125)


def tables(**more):
    options = {"max_rows_per_push": 64, **more}
    return {
        name: holdfast.EmbeddingTable(D, holdfast.Uniform(low=-1.0, high=1.0), **options)
        for name in ("users", "items")
    }


def examples():
    """Ids of users [n] and items [n, 3], many of which occur several times, and targets."""
    random = np.random.default_rng(4)
    users = random.integers(IDS, size=EXAMPLES)
    items = random.integers(IDS, size=(EXAMPLES, 3))
    return users, items, random.standard_normal(EXAMPLES, np.float32)


def loss_of(params, rows, y):
    """The loss of a dot product of a user and the sum of some items."""
    scores = (rows["users"] * rows["items"].sum(axis=1)) @ params["w"]
    return jnp.mean((scores - y) ** 2)


STEP = jax.jit(jax.value_and_grad(loss_of, argnums=(0, 1)))


class RowsTest(unittest.TestCase):
    def setUp(self):
        self.ps = self.enterContext(LocalCluster(2))
        self.cluster = self.enterContext(holdfast.connect(**self.ps.task()))

    def trainer(self, *, optimizer=SGD, steps=6, of=None, **options):
        return holdfast.jax.Trainer(
            {"w": jnp.ones(D)},
            optimizer=optimizer,
            steps=steps,
            tables=tables() if of is None else of,
            cluster=self.cluster,
            **options,
        )

    def every(self, trainer):
        return trainer.rows({name: np.arange(IDS) for name in ("users", "items")})

    def test_is_jax_alone(self):
        users, items, y = examples()
        trainer = self.trainer()
        params, alone = trainer.params, self.every(trainer)
        self.assertEqual(trainer.names, ["w"])

        def ids_of(batch):
            return {"users": users[batch], "items": items[batch]}

        wanted = []
        want = holdfast.Cluster.want_rows

        def counted(cluster, ids):
            wanted.append(ids["users"].tolist())
            return want(cluster, ids)

        used = []
        with mock.patch.object(holdfast.Cluster, "want_rows", counted):
            for batch in trainer.batches(EXAMPLES, 16, ids=ids_of):
                rows = trainer.rows(ids_of(batch))
                used.append(users[batch].tolist())
                self.assertEqual(rows["items"].shape, (16, 3, D))
                loss, (grads, of_rows) = STEP(trainer.params, rows, y[batch])

                def whole(params, alone, ids=ids_of(batch), batch=batch):
                    rows = {name: alone[name][ids[name]] for name in ids}
                    return loss_of(params, rows, y[batch])

                expected, (dense, table) = jax.value_and_grad(whole, argnums=(0, 1))(params, alone)
                np.testing.assert_allclose(loss, expected, rtol=1e-5)
                params, alone = jax.tree.map(
                    lambda value, gradient: value - 0.125 * gradient,
                    (params, alone),
                    (dense, table),
                )
                trainer.push(loss, grads, ids=ids_of(batch), rows=of_rows)
        # Each step announced the rows of the next batch; the last announcement was never used.
        self.assertEqual(wanted[:-1], used[1:])
        for one, other in zip(
            jax.tree.leaves((trainer.params, self.every(trainer))),
            jax.tree.leaves((params, alone)),
            strict=True,
        ):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)

    def test_where_nobody_knows_the_next_batch(self):
        users, items, y = examples()
        trainer = self.trainer(consistency=holdfast.Asynchronous())
        with mock.patch.object(holdfast.Cluster, "want_rows") as want:
            for batch in trainer.batches(EXAMPLES, 16, ids=lambda batch: {"users": users[batch]}):
                ids = {"users": users[batch], "items": items[batch]}
                loss, (grads, rows) = STEP(trainer.params, trainer.rows(ids), y[batch])
                trainer.push(loss, grads, ids=ids, rows=rows)
        want.assert_not_called()

    def test_ids_are_bits(self):
        trainer = self.trainer(steps=1)
        ids = np.array([-1, 2**63 - 1, 5])
        first = trainer.rows({"users": ids})["users"]
        self.assertEqual(len(set(first[:, 0].tolist())), 3)
        for _ in trainer.batches():
            ones = {"users": jnp.ones((3, D))}
            trainer.push(0.0, {"w": jnp.zeros(D)}, ids={"users": ids}, rows=ones, examples=1)
        last = trainer.rows({"users": ids.view(np.uint64)})["users"]
        np.testing.assert_allclose(first - 0.125, last)

    def test_reading_makes_nothing(self):
        trainer = self.trainer(steps=2)
        first = self.every(trainer)
        for _ in trainer.batches():
            self.every(trainer)
            trainer.push(0.0, {"w": jnp.zeros(D)}, examples=1)
        jax.tree.map(np.testing.assert_array_equal, first, self.every(trainer))

    def test_what_is_not_finite_counts_nowhere(self):
        trainer = self.trainer(steps=2)
        ids = {"users": [1]}
        for number, _ in enumerate(trainer.batches()):
            rows = {"users": jnp.full((1, D), jnp.nan if number == 0 else 1.0)}
            trainer.push(0.0, {"w": jnp.zeros(D)}, ids=ids, rows=rows, examples=1)
        self.assertEqual(self.cluster.outcomes().not_finite, 1)
        self.assertTrue(np.isfinite(trainer.rows(ids)["users"]).all())

    def test_refused(self):
        trainer = self.trainer(steps=1, of=tables(max_rows_per_push=2))
        ones, w = jnp.ones((3, D)), {"w": jnp.zeros(D)}
        with self.assertRaisesRegex(TypeError, "give examples"):
            next(trainer.batches(ids=lambda batch: {}))
        with self.assertRaisesRegex(ValueError, 'there is no table "x"; there are: users, items'):
            trainer.rows({"x": [1]})
        with self.assertRaisesRegex(TypeError, 'ids of table "users" have dtype float64'):
            trainer.rows({"users": [0.5]})
        for _ in trainer.batches():
            for ids, rows, error, message in (
                ({"users": [1]}, None, ValueError, r"tables \['users'\], but rows has \[\]"),
                ({"users": [1]}, {"users": ones}, ValueError, r"shape \(3, 4\); .* \(1, 4\)"),
                ({"users": [1, 2, 3]}, {"users": ones}, holdfast.Refused, "3 rows are pushed"),
            ):
                with self.assertRaisesRegex(error, message):
                    trainer.push(0.0, w, ids=ids, rows=rows, examples=1)
            trainer.push(0.0, w, examples=1)

    def test_a_push_that_is_refused_may_be_corrected(self):
        trainer = self.trainer(steps=1, of=tables(max_rows_per_push=2))
        ids = {"users": [1], "items": [1, 2]}
        before = np.asarray(trainer.rows({"users": [1]})["users"])
        right = {
            "loss": 0.0,
            "grads": {"w": jnp.zeros(D)},
            "ids": ids,
            "rows": {"users": jnp.ones((1, D)), "items": jnp.zeros((2, D))},
            "examples": 1,
        }
        for batch in trainer.batches():
            for wrong, message in (
                ({"examples": 2.0}, "examples is 2.0; it must be an int"),
                ({"examples": -1}, "examples is -1; it must be from 0"),
                ({"clip_factor": float("nan")}, "clip_factor is nan; it must be from 0 to 1"),
                ({"loss": "low"}, "loss is 'low'; it must be a number"),
                ({"loss": jnp.ones(2)}, "loss is .*; it must be a number"),
                ({"grads": {"w": jnp.zeros(D + 1)}}, 'gradient of "w" has shape'),
                ({"rows": {**right["rows"], "items": jnp.zeros((3, D))}}, r"shape \(3, 4\)"),
            ):
                with (
                    self.subTest(message),
                    self.assertRaisesRegex((TypeError, ValueError), message),
                ):
                    trainer.push(**{**right, **wrong})
            trainer.push(**right)
        self.assertEqual(batch, 0)
        self.assertEqual(self.cluster.outcomes().accepted, 1)
        after = np.asarray(trainer.rows({"users": [1]})["users"])
        np.testing.assert_array_equal(after, before - np.float32(0.125))


# A worker that waits before step `stand_at`, unless that is None, until `go` exists.
WORKER = """
import json, os, time
import numpy as np
import holdfast, holdfast.jax
from jax_rows_test import *

users, items, y = examples()
trainer = holdfast.jax.Trainer(
    {{"w": jnp.ones(D)}}, optimizer=SGD, steps=40, tables=tables(),
    checkpoints=holdfast.Checkpoints(every_steps=5))
ids_of = lambda batch: {{"users": users[batch], "items": items[batch]}}
for batch in trainer.batches(EXAMPLES, 16, ids=ids_of):
    if trainer.cluster.step == {stand_at}:
        print("stands", flush=True)
        while not os.path.exists({go!r}):
            time.sleep(0.01)
    loss, (grads, rows) = STEP(trainer.params, trainer.rows(ids_of(batch)), y[batch])
    trainer.push(loss, grads, ids=ids_of(batch), rows=rows)
rows = trainer.rows({{name: np.arange(IDS) for name in ("users", "items")}})
print(json.dumps([holdfast.digest({{name: np.array(value) for name, value in rows.items()}}),
                  holdfast.digest(trainer.cluster.pull())]))
"""


class FaultsTest(unittest.TestCase):
    def start(self, ps, index, stand_at=None):
        text = WORKER.format(stand_at=stand_at, go=os.path.join(ps.folder, "go"))
        return ps.run(text, index)

    def finish(self, ps, workers):
        for worker in workers:
            worker.wait(LIMIT)
        results = [worker.result() for worker in workers]
        ps.await_end()
        self.assertEqual(results[0], results[1])
        return results[0]

    def test_the_same_bits_whatever_dies(self):
        with LocalCluster(1, 2) as ps:
            expected = self.finish(ps, [self.start(ps, i) for i in range(2)])
        with self.subTest("a ps"), LocalCluster(2, 2) as ps:
            workers = [self.start(ps, 0, 17), self.start(ps, 1)]
            workers[0].await_output("stands", LIMIT)
            ps.kill_ps(1)
            open(os.path.join(ps.folder, "go"), "w").close()
            self.assertEqual(self.finish(ps, workers), expected)
        with self.subTest("a worker"), LocalCluster(2, 2, flags=("--lease=1s",)) as ps:
            workers = [self.start(ps, 0), self.start(ps, 1, 17)]
            workers[1].await_output("stands", LIMIT)
            workers[1].stop()
            self.assertEqual(self.finish(ps, [workers[0], self.start(ps, 1)]), expected)


if __name__ == "__main__":
    unittest.main()
