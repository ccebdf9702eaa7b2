# SPDX-License-Identifier: Apache-2.0

"""Loops that are interrupted at random moments and entered again, and at chosen ones."""

import unittest

import numpy as np
from interrupts import LARGE, train
from local_cluster import LocalCluster

import holdfast

FLOAT32 = np.float32
ONE = np.ones(1, FLOAT32)


class RandomMomentsTest(unittest.TestCase):
    def check(self, kind, *, times, seconds, steps):
        struck = train(kind, times=times, seconds=seconds, seed=5, steps=steps)
        # On a machine that is fast, the job may be done before.
        self.assertGreater(struck, times // 2)

    def test_by_step(self):
        self.check("by_step", times=150, seconds=0.0003, steps=1500)

    def test_by_ticket(self):
        self.check("by_ticket", times=150, seconds=0.0003, steps=1500)

    def test_rows(self):
        self.check("rows", times=100, seconds=0.0005, steps=1000)

    def test_gradients_in_advance(self):
        self.check("add", times=20, seconds=0.01, steps=200)


class ChosenMomentsTest(unittest.TestCase):
    def setUp(self):
        self.ps = LocalCluster()
        self.addCleanup(self.ps.__exit__)

    def start(self, variables, *, steps=3, same_host=None):
        cluster = holdfast.connect(**self.ps.task(), same_host=same_host)
        self.addCleanup(cluster.close)
        cluster.declare(variables, optimizer=holdfast.Sgd(learning_rate=1.0), steps=steps)
        return cluster

    def interrupt_in(self, cluster, name):
        """Lets the next call of a function of the library end, but not return."""
        loop = cluster._begin()
        function = getattr(loop, name)

        def interrupted(*arguments):
            setattr(loop, name, function)
            function(*arguments)
            raise KeyboardInterrupt

        setattr(loop, name, interrupted)

    def test_between_the_call_and_its_result(self):
        for name in ("_push", "_next"):
            with self.subTest(name), LocalCluster() as ps, holdfast.connect(**ps.task()) as cluster:
                cluster.declare(
                    {"w": holdfast.Variable(1)}, optimizer=holdfast.Sgd(learning_rate=1.0), steps=3
                )
                batches = cluster.batches()
                self.assertEqual(next(batches), 0)
                self.interrupt_in(cluster, name)
                with self.assertRaises(KeyboardInterrupt):
                    cluster.push([ONE], loss=0.0, examples=1)
                # It was pushed.
                with self.assertRaisesRegex(holdfast.Error, "there is no current batch"):
                    cluster.push([ONE], loss=0.0, examples=1)
                with self.assertRaisesRegex(holdfast.Error, "there is no current batch"):
                    cluster.add({"w": ONE})
                self.assertEqual(cluster.pull()["w"].tolist(), [-1])
                self.assertEqual(next(batches), 1)
                cluster.push([ONE], loss=0.0, examples=1)
                self.assertEqual(list(map(self.push_to(cluster), cluster.batches())), [2])
                self.assertEqual(cluster.pull()["w"].tolist(), [-3])

    @staticmethod
    def push_to(cluster):
        def push(batch):
            cluster.push([ONE], loss=0.0, examples=1)
            return batch

        return push

    def test_what_was_handed_in_before_is_forgotten(self):
        cluster = self.start({"a": holdfast.Variable(LARGE), "b": holdfast.Variable(1)})
        ones = np.ones(LARGE, FLOAT32)
        self.assertEqual(next(cluster.batches()), 0)
        cluster.add({"a": 5 * ones})
        # As after an exception in the body.
        self.assertEqual(next(cluster.batches()), 0)
        with self.assertRaisesRegex(ValueError, "1 gradients for 2 trainable variables"):
            cluster.push([ONE], loss=0.0, examples=1)
        cluster.push({"a": ones, "b": ONE}, loss=0.0, examples=1)
        self.assertEqual(next(cluster.batches()), 1)
        # An interrupt in the middle of add.
        self.interrupt_in(cluster, "_add")
        with self.assertRaises(KeyboardInterrupt):
            cluster.add({"a": 5 * ones})
        cluster.add({"a": ones})
        cluster.push([ONE], loss=0.0, examples=1)
        values = cluster.pull()
        self.assertTrue((values["a"] == -2).all())
        self.assertEqual(values["b"], -2)

    def test_gradients_that_change_after_add(self):
        self.check_gradients_that_change("auto")

    def test_gradients_that_change_after_parts_were_sent(self):
        self.check_gradients_that_change("off")

    def check_gradients_that_change(self, same_host):
        """What counts is what they are at push, whatever was sent before."""
        variables = {"a": holdfast.Variable(LARGE), "b": holdfast.Variable((3, LARGE // 3))}
        variables["c"] = holdfast.Variable(1)
        cluster = self.start(variables, steps=4, same_host=same_host)
        a = np.empty(LARGE, FLOAT32)
        b = np.empty((LARGE // 3, 3), FLOAT32).T  # handed in by push, in the order of the variable
        for batch in cluster.batches():
            a[:] = 1
            b[:] = 1
            cluster.add({"a": a})
            cluster.add({"b": b})
            if batch == 1:
                a[-1] = 2
            if batch == 2:
                b[2, 0] = 2
            if batch == 3:
                a *= 2
                b *= 2
            cluster.push({"c": ONE}, loss=0.0, examples=1)
        values = cluster.pull()
        self.assertTrue((values["a"][:-1] == -5).all())
        self.assertEqual(values["a"][-1], -6)
        self.assertEqual(values["b"][2, 0], -6)
        self.assertTrue((values["b"][:2] == -5).all())
        self.assertEqual(values["c"], -4)
        self.assertEqual(cluster.outcomes().accepted, 4)

    def test_small_gradients_that_change_after_add(self):
        cluster = self.start({"a": holdfast.Variable(1), "b": holdfast.Variable(1)})
        next(cluster.batches())
        changing = np.ones(1, FLOAT32)
        cluster.add({"a": changing})
        changing[0] = 3
        cluster.push([ONE], loss=0.0, examples=1)
        self.assertEqual(cluster.pull()["a"], -3)


if __name__ == "__main__":
    unittest.main()
