# SPDX-License-Identifier: Apache-2.0

"""Several JAX workers make the same steps as one worker, with the same bits whichever task
dies."""

import os
import unittest

import jax
import numpy as np
from jax_model import RULES, examples, train_alone
from local_cluster import LocalCluster

import holdfast

LIMIT = 200.0  # timeout of a script in seconds, including the import of JAX
STEPS = 100
EXAMPLES = 1000

# A worker that waits before step `stand_at`, unless that is None, until `go` exists.
WORKER = """
import json, os, time
import jax
import holdfast, holdfast.jax
from jax_model import examples, loss_of, perceptron

x, y = examples({examples})
step = jax.jit(jax.value_and_grad(loss_of))
trainer = holdfast.jax.Trainer(
    perceptron(), optimizer={optimizer}, steps={steps},
    checkpoints=holdfast.Checkpoints(every_steps=5))
values = {{}}
for batch in trainer.batches(len(x), {size}, seed=1):
    if trainer.cluster.step == 1:
        values["1"] = trainer.params
    if trainer.cluster.step == {stand_at}:
        print("stands", flush=True)
        while not os.path.exists({go!r}):
            time.sleep(0.01)
    trainer.push(*step(trainer.params, x[batch], y[batch]))
values["last"] = trainer.params
values = jax.tree.map(lambda leaf: leaf.tolist(), values)
print(json.dumps([holdfast.digest(trainer.cluster.pull()), values]))
"""


def start(ps, rule, index, *, size=100, stand_at=None):
    text = WORKER.format(
        examples=EXAMPLES, optimizer=RULES[rule][2], steps=STEPS, size=size, stand_at=stand_at,
        go=os.path.join(ps.folder, "go"),
    )  # fmt: skip
    return ps.run(text, index)


def finish(ps, workers):
    """The digest and the values, on which all workers must agree."""
    for worker in workers:
        worker.wait(LIMIT)
    results = [worker.result() for worker in workers]
    ps.await_end()
    for result in results[1:]:
        assert result[0] == results[0][0], results
    return results[0]


def go(ps):
    open(os.path.join(ps.folder, "go"), "w").close()


def train(rule, *, num_ps=1, num_workers=2, size=100):
    with LocalCluster(num_ps, num_workers) as ps:
        return finish(ps, [start(ps, rule, i, size=size) for i in range(num_workers)])


def difference(some, others):
    """The greatest difference of a variable, relative in norm."""
    return max(
        np.linalg.norm(np.asarray(one) - np.asarray(other)) / np.linalg.norm(other)
        for one, other in zip(jax.tree.leaves(some), jax.tree.leaves(others), strict=True)
    )


class EquivalenceTest(unittest.TestCase):
    def test_two_workers_of_100_are_one_process_of_200(self):
        x, y = examples(EXAMPLES)
        steps = [holdfast.batch_indices(t, EXAMPLES, 200, seed=1) for t in range(STEPS)]
        for rule in RULES:
            with self.subTest(rule):
                whole = train_alone(rule, x, y, steps, accumulate=1)
                _, values = train(rule)
                values = jax.tree.map(np.float32, values, is_leaf=lambda v: isinstance(v, list))
                after_one = difference(values["1"], whole[1])
                # JAX's own difference, which comes only from another order of additions.
                halves = train_alone(rule, x, y, steps, accumulate=2)
                own = difference(halves[-1], whole[-1])
                after_all = difference(values["last"], whole[-1])
                print(f"{rule}: {after_one:.1e} after 1 step; {after_all:.1e} after {STEPS},"
                      f" JAX's own {own:.1e}")  # fmt: skip
                self.assertLess(after_one, 1e-6)
                self.assertLess(after_all, 2 * own)


class DigestTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.expected, _ = train("momentum")

    def check(self, ps, workers):
        self.assertEqual(finish(ps, workers)[0], self.expected)

    def test_any_number_of_ps(self):
        for num_ps in (2, 4):
            with self.subTest(ps=num_ps):
                self.assertEqual(train("momentum", num_ps=num_ps)[0], self.expected)

    def test_a_worker_is_killed(self):
        with LocalCluster(2, 2, flags=("--lease=1s",)) as ps:
            workers = [start(ps, "momentum", 0), start(ps, "momentum", 1, stand_at=37)]
            workers[1].await_output("stands", LIMIT)
            workers[1].stop()
            self.check(ps, [workers[0], start(ps, "momentum", 1)])

    def test_a_ps_is_killed(self):
        for index in (0, 1):
            with self.subTest(ps=index), LocalCluster(2, 2) as ps:
                workers = [start(ps, "momentum", 0, stand_at=37), start(ps, "momentum", 1)]
                workers[0].await_output("stands", LIMIT)
                ps.kill_ps(index)
                go(ps)
                self.check(ps, workers)


if __name__ == "__main__":
    unittest.main()
