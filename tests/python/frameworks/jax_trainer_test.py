# SPDX-License-Identifier: Apache-2.0

"""holdfast.jax in one process: names, dtypes, shardings, and ownership of memory."""

import os

# Several devices on one host, like a TPU host.
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import collections
import dataclasses
import functools
import json
import unittest
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax_model import examples, loss_of, perceptron
from local_cluster import LocalCluster, await_that

import holdfast
import holdfast.jax

SGD = holdfast.Sgd(learning_rate=1.0)


@functools.partial(jax.tree_util.register_dataclass, data_fields=["w", "b"], meta_fields=["units"])
@dataclasses.dataclass
class Dense:
    w: jax.Array
    b: jax.Array
    units: int


Pair = collections.namedtuple("Pair", "first second")


class TrainerTest(unittest.TestCase):
    def setUp(self):
        self.ps = LocalCluster(1, flags=("--lease=1s",))
        self.addCleanup(self.ps.__exit__)
        self.cluster = holdfast.connect(**self.ps.task())
        self.addCleanup(self.cluster.close)

    def trainer(self, params, *, optimizer=SGD, steps=3, **options):
        return holdfast.jax.Trainer(
            params, optimizer=optimizer, steps=steps, cluster=self.cluster, **options
        )

    def check_equal(self, got, expected):
        self.assertEqual(jax.tree.structure(got), jax.tree.structure(expected))
        for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
            self.assertEqual(one.dtype, other.dtype)
            np.testing.assert_array_equal(one, other)

    def test_workers_compare_the_order_of_examples(self):
        with LocalCluster(1, 2) as ps, holdfast.connect(**ps.task(0)) as chief:
            first = holdfast.jax.Trainer(jnp.ones(3), optimizer=SGD, steps=4, cluster=chief)
            self.assertEqual(len(next(first.batches(60, 4))), 4)
            with holdfast.connect(**ps.task(1)) as cluster:
                other = holdfast.jax.Trainer(jnp.ones(3), optimizer=SGD, steps=4, cluster=cluster)
                for arguments, text in (
                    ((50, 4), "dataset length 50, the job has 60: "),
                    ((60, 8), "batch size 8, the job has 4: "),
                ):
                    with self.assertRaises(holdfast.Refused) as caught:
                        next(other.batches(*arguments))
                    self.assertIn("/job:worker/task:1 has " + text, str(caught.exception))
                    self.assertIn("with agree=False, batches() ", str(caught.exception))
                self.assertEqual(len(next(other.batches(50, 8, agree=False))), 8)
                self.assertEqual(len(next(other.batches(60, 4))), 4)

    def test_any_pytree(self):
        params = {
            "layers": [
                Dense(jnp.arange(6.0).reshape(2, 3), np.ones(3, np.float32), 3),
                Dense(jnp.ones((3, 1)), jnp.zeros(1), 1),
            ],
            "pair": Pair(jnp.ones(2), (jnp.float32(3), None)),
            "a b:c": jnp.full((1, 2, 3), 5.0),
            "_hidden": jnp.zeros((0, 4)),
            7: jnp.ones(1),
        }
        # JAX sorts keys of one type only.
        seven = params.pop(7)
        params["by_number"] = {7: seven}
        trainer = self.trainer(params)
        self.assertEqual(
            trainer.names,
            ["x_hidden", "a_b_c", "by_number/7", "layers/0/w", "layers/0/b", "layers/1/w",
             "layers/1/b", "pair/first", "pair/second/0"],
        )  # fmt: skip
        self.assertEqual(list(self.cluster.pull()), trainer.names)
        self.check_equal(trainer.params, params)
        for _ in trainer.batches():
            trainer.push(0.0, jax.tree.map(jnp.ones_like, trainer.params), examples=1)
        self.check_equal(trainer.params, jax.tree.map(lambda leaf: leaf - 3, params))

    def test_one_array(self):
        trainer = self.trainer(jnp.ones(3))
        self.assertEqual(trainer.names, ["params"])
        self.check_equal(trainer.params, jnp.ones(3))

    def test_a_constructor_that_failed_is_called_again(self):
        task = {"cluster": self.ps.spec, "task": {"type": "worker", "index": 0}}
        params = {"w": jnp.ones(2)}
        with mock.patch.dict(os.environ, TF_CONFIG=json.dumps(task)):
            for wrong, error in (({"steps": 0}, holdfast.Refused), ({"no_such_option": 1}, TypeError)):
                with self.assertRaises(error):
                    holdfast.jax.Trainer(params, optimizer=SGD, **{"steps": 1, **wrong})
            trainer = holdfast.jax.Trainer(params, optimizer=SGD, steps=1)
        for _ in trainer.batches():
            trainer.push(0.0, {"w": jnp.ones(2)}, examples=1)
        self.assertEqual(trainer.params["w"].tolist(), [0, 0])
        trainer.cluster.close()
        self.ps.await_end()
        with self.assertRaisesRegex(holdfast.Error, "connected as /job:worker/task:0 again"):
            self.cluster.status()

    def test_names_of_two_leaves(self):
        with self.assertRaisesRegex(ValueError, "two leaves have the same name: a/b; names keep"):
            self.trainer({"a": {"b": jnp.ones(1)}, "a/b": jnp.ones(1)})

    def test_leaves_that_are_no_variables(self):
        for leaf, message in (
            (jnp.int32(1), r"""params\['a'\]\[0\] \("a/0"\) has dtype int32, not float32, bfloat16"""),
            (jax.random.key(1), r'\("a/0"\) has dtype key<fry>, not float32, '),
            (np.float64(1), r'\("a/0"\) has dtype float64, '),
            (2.0, r'\("a/0"\) is not an array: 2.0'),
        ):
            with self.subTest(type(leaf)), self.assertRaisesRegex(TypeError, message):
                self.trainer({"a": [leaf]})

    def test_batches(self):
        trainer = self.trainer(jnp.ones(3), steps=4)
        grads = jnp.zeros(3)
        for number, batch in enumerate(trainer.batches(10, 4, seed=5)):
            np.testing.assert_array_equal(batch, holdfast.batch_indices(number, 10, 4, seed=5))
            self.assertEqual(trainer.batch, number)
            trainer.push(0.5, grads)
            if number == 1:
                break
        with self.assertRaisesRegex(TypeError, "batches: give examples and batch_size"):
            next(trainer.batches(10))
        for number, batch in enumerate(trainer.batches()):
            self.assertEqual(batch, number + 2)
            with self.assertRaisesRegex(TypeError, "push: examples is required"):
                trainer.push(0.5, grads)
            trainer.push(jnp.float32(0.5), grads, examples=6)
        status = self.cluster.status()
        self.assertEqual(status.examples, 2 * 4 + 2 * 6)
        self.assertEqual(status.train_loss, 0.5)

    def test_waiting_for_input_is_told(self):
        def waits():
            tasks = self.cluster.status().everything["tasks"]
            return any(task.get("worker", {}).get("waiting_for") == "input" for task in tasks)

        trainer = self.trainer(jnp.ones(3), steps=1)
        for _ in trainer.batches(10, 4):
            with trainer.waiting_for_input():
                await_that(waits, "a report of the wait")
            await_that(lambda: not waits(), "its end")
            trainer.push(0.5, jnp.zeros(3))

    def test_gradients_that_do_not_fit(self):
        trainer = self.trainer({"a": jnp.ones(3), "b": jnp.ones(2)}, steps=1)
        a, b = jnp.ones(3), jnp.ones(2)
        for grads, error, message in (
            ({"a": a}, ValueError, "grads: expected PyTreeDef.*'a'.*'b'.*, got PyTreeDef.*'a'"),
            ((0.0, {"a": a, "b": b}), ValueError, "grads: expected PyTreeDef"),
            ({"a": b, "b": b}, ValueError, r'gradient of "a" has shape \(2,\), declared \(3,\)'),
            ({"a": a.astype(int), "b": b}, TypeError, 'gradient of "a" has dtype int32'),
        ):
            for _ in trainer.batches():
                with self.assertRaisesRegex(error, message):
                    trainer.push(0.0, grads, examples=1)
                break
        for _ in trainer.batches():
            trainer.push(0.0, {"a": a, "b": b}, examples=1)

    def test_masters_are_float32(self):
        # 256 steps of 2^-10 add up to 0.25. In bfloat16, which has 8 bits, each would be lost when
        # added to 1.
        small = 2.0**-10
        params = {name: jnp.ones(3, name) for name in ("bfloat16", "float16", "float32")}
        trainer = self.trainer(params, steps=256)
        for _ in trainer.batches():
            grads = jax.tree.map(lambda leaf: jnp.full_like(leaf, -small), trainer.params)
            # A gradient in the master's dtype works equally well.
            if trainer.batch % 2:
                grads = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), grads)
            trainer.push(0.0, grads, examples=1)
        expected = {name: jnp.full(3, 1.25, name) for name in params}
        self.check_equal(trainer.params, expected)
        for value in self.cluster.pull().values():
            self.assertEqual(value.dtype, np.float32)
            np.testing.assert_array_equal(value, 1.25)

    def test_a_master_is_rounded_to_the_nearest(self):
        # 1 + 2^-9 and 1 + 3 x 2^-9 are between adjacent bfloat16 values, which are 2^-7 apart.
        trainer = self.trainer(jnp.ones(2, jnp.bfloat16), steps=1)
        for _ in trainer.batches():
            trainer.push(0.0, jnp.array([-(2.0**-9), -3 * 2.0**-9]), examples=1)
        np.testing.assert_array_equal(
            np.asarray(trainer.params, np.float32), np.float32([1, 1 + 2.0**-7])
        )

    def test_values_of_a_step_stay_as_they_are(self):
        # Large enough that JAX may take over the memory of NumPy arrays.
        params = {f"p{i}": jnp.zeros(64 * 1024 + i) for i in range(4)}
        trainer = self.trainer(params, steps=8)
        kept = []
        for step, _ in enumerate(trainer.batches()):
            kept.append(trainer.params)
            trainer.push(0.0, jax.tree.map(lambda leaf: jnp.full_like(leaf, -1), params), examples=1)
            for before, values in enumerate(kept):
                for value in jax.tree.leaves(values):
                    np.testing.assert_array_equal(value, before)
        for value in jax.tree.leaves(trainer.params):
            np.testing.assert_array_equal(value, step + 1)

    def test_values_and_gradients_may_be_donated(self):
        @functools.partial(jax.jit, donate_argnums=(0,))
        def step(params, x):
            grads = jax.tree.map(lambda leaf: leaf * 0 - x, params)
            return params["w"].sum(), grads

        trainer = self.trainer({"w": jnp.zeros(100_000)}, steps=5)
        losses = []
        for _ in trainer.batches():
            loss, grads = step(trainer.params, 1.0)
            losses.append(float(loss))
            trainer.push(loss, grads, examples=1)
        self.assertEqual(losses, [100_000.0 * step for step in range(5)])
        np.testing.assert_array_equal(trainer.params["w"], 5)

    def test_options_of_variables(self):
        params = {"kernel": jnp.ones(2), "bias": jnp.ones(2)}
        trainer = self.trainer(
            params,
            steps=1,
            options=lambda name: {"optimizer": holdfast.Sgd(learning_rate=0.5)}
            if name == "bias"
            else {},
        )
        for _ in trainer.batches():
            trainer.push(0.0, params, examples=1)
        self.check_equal(trainer.params, {"kernel": jnp.zeros(2), "bias": jnp.full(2, 0.5)})

    def test_state_is_averaged(self):
        state = {"mean": jnp.zeros(2), "var": jnp.ones(2, jnp.bfloat16)}
        trainer = self.trainer({"w": jnp.ones(1)}, state=state, moving_average=0.5, steps=2)
        self.assertEqual(list(self.cluster.pull()), ["w", "state/mean", "state/var"])
        self.check_equal(trainer.state, state)
        for _ in trainer.batches():
            with self.assertRaisesRegex(ValueError, "state: expected .*, got PyTreeDef"):
                trainer.push(0.0, {"w": jnp.zeros(1)}, examples=1)
            of_batch = {"mean": jnp.full(2, 8.0), "var": jnp.full(2, 3, jnp.bfloat16)}
            trainer.push(0.0, {"w": jnp.zeros(1)}, state=of_batch, examples=1)
        # 0.5 (0.5 x 0 + 0.5 x 8) + 0.5 x 8, and 0.5 (0.5 x 1 + 0.5 x 3) + 0.5 x 3.
        self.check_equal(
            trainer.state, {"mean": jnp.full(2, 6.0), "var": jnp.full(2, 2.5, jnp.bfloat16)}
        )

    def test_a_checkpoint_without_a_cluster(self):
        params = {"a": [jnp.ones((2, 2)), jnp.zeros(3, jnp.bfloat16)]}
        trainer = self.trainer(params, steps=2)
        for _ in trainer.batches():
            trainer.push(0.0, jax.tree.map(jnp.ones_like, params), examples=1)
        self.cluster.close()
        self.ps.await_end()
        shapes = jax.eval_shape(lambda: params)
        got = holdfast.jax.load_checkpoint(self.ps.checkpoints, shapes)
        self.check_equal(got, {"a": [jnp.full((2, 2), -1.0), jnp.full(3, -2, jnp.bfloat16)]})
        with self.assertRaisesRegex(ValueError, 'there is no variable "b"'):
            holdfast.jax.load_checkpoint(self.ps.checkpoints, {"b": jnp.ones(1)})
        with self.assertRaisesRegex(ValueError, r'"a/0" has shape \(2, 2\), not \(4,\)'):
            holdfast.jax.load_checkpoint(self.ps.checkpoints, {"a": [jnp.ones(4)]})


# The layers are divided as in Megatron (Shoeybi et al. 2019): the first by its outputs, the second
# by its inputs.
SPECS = {
    "hidden": {"kernel": PartitionSpec(None, "model"), "bias": PartitionSpec("model")},
    "out": {"kernel": PartitionSpec("model", None), "bias": PartitionSpec()},
}


class MeshTest(unittest.TestCase):
    def train(self, params, place_batch):
        """The trainer's params before and after 30 steps on random examples, and the losses."""
        x, y = examples(400)
        step = jax.jit(jax.value_and_grad(loss_of))
        losses = []
        with LocalCluster(2) as ps, holdfast.connect(**ps.task()) as cluster:
            trainer = holdfast.jax.Trainer(
                params,
                optimizer=holdfast.Momentum(learning_rate=0.1, momentum=0.9),
                steps=30,
                cluster=cluster,
            )
            before = trainer.params
            for batch in trainer.batches(len(x), 32):
                loss, grads = step(trainer.params, place_batch(x[batch]), place_batch(y[batch]))
                losses.append(float(loss))
                trainer.push(loss, grads)
            return before, trainer.params, losses

    def test_two_by_four_devices_are_one_worker(self):
        self.assertEqual(jax.device_count(), 8)
        mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"))
        shardings = jax.tree.map(
            lambda spec: NamedSharding(mesh, spec),
            SPECS,
            is_leaf=lambda spec: isinstance(spec, PartitionSpec),
        )
        by_example = NamedSharding(mesh, PartitionSpec("data"))
        before, params, losses = self.train(
            jax.device_put(perceptron(), shardings), lambda rows: jax.device_put(rows, by_example)
        )
        for values in (before, params):
            self.assertEqual(jax.tree.map(lambda leaf: leaf.sharding, values), shardings)
        # Each device has a quarter of the hidden units.
        kernel = params["hidden"]["kernel"]
        self.assertEqual({shard.data.shape for shard in kernel.addressable_shards}, {(20, 16)})

        _, expected, expected_losses = self.train(perceptron(), lambda rows: rows)
        for leaf in jax.tree.leaves(expected):
            self.assertEqual(leaf.devices(), {jax.devices()[0]})
        # Sums over different parts of batch and units are rounded differently, by some units in
        # the last place, which 30 steps with momentum propagate.
        np.testing.assert_allclose(losses, expected_losses, rtol=1e-5)
        for one, other in zip(jax.tree.leaves(params), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
        self.assertLess(losses[-1], losses[0])


if __name__ == "__main__":
    unittest.main()
