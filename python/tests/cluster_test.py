# SPDX-License-Identifier: Apache-2.0

"""The training loop against real ps daemons."""

import json
import math
import pickle
import tempfile
import unittest

import numpy as np
from local_cluster import LocalCluster

import holdfast

FLOAT32 = np.float32
ONE = np.ones(1, FLOAT32)

# One of two or more workers: the gradient of a batch is its number plus one.
SCRIPT = """
    import json, sys
    import numpy as np
    import holdfast
    with holdfast.connect() as cluster:
        cluster.declare(
            {{"w": holdfast.Variable(3), "b": holdfast.Variable(2, holdfast.Constant(value=5.0))}},
            optimizer=holdfast.Sgd(learning_rate=1.0),
            steps={steps},
            consistency={consistency},
        )
        gradients = {{"w": np.empty(3, np.float32), "b": np.empty(2, np.float32)}}
        batches = []
        for batch in cluster.batches():
            batches.append(batch)
            for gradient in gradients.values():
                gradient[:] = batch + 1  # the same memory each time
            cluster.push(gradients, loss=0.5, examples=10)
        values = {{name: value.tolist() for name, value in cluster.pull().items()}}
        outcomes = cluster.outcomes()
    print(json.dumps({{"batches": batches, "values": values, "accepted": outcomes.accepted,
                       "not_finite": outcomes.not_finite, "replica": cluster.replica}}))
"""


def declare(cluster, variables, *, steps=3, learning_rate=1.0, **more):
    cluster.declare(
        variables, optimizer=holdfast.Sgd(learning_rate=learning_rate), steps=steps, **more
    )


class OneWorkerTest(unittest.TestCase):
    def setUp(self):
        self.ps = LocalCluster()
        self.addCleanup(self.ps.__exit__)

    def connect(self):
        cluster = holdfast.connect(**self.ps.task())
        self.addCleanup(cluster.close)
        return cluster

    def start(self, variables, **more):
        """A cluster in its first turn."""
        cluster = self.connect()
        declare(cluster, variables, **more)
        batches = cluster.batches()
        self.assertEqual(next(batches), 0)
        return cluster, batches

    def test_a_whole_loop(self):
        batches, steps, seen = [], [], []
        with holdfast.connect(**self.ps.task()) as cluster:
            self.assertEqual(cluster.task, "/job:worker/task:0")
            self.assertEqual((cluster.replica, cluster.replicas), (0, 1))
            self.assertTrue(cluster.is_chief)
            declare(cluster, {"w": holdfast.Variable((2, 2)), "s": holdfast.Variable(())})
            for batch in cluster.batches():
                batches.append(batch)
                steps.append(cluster.step)
                values = cluster.pull()
                seen.append((values["w"][0, 0], float(values["s"])))
                self.assertEqual(list(values), ["w", "s"])
                self.assertEqual(values["w"].dtype, FLOAT32)
                self.assertEqual(values["s"].shape, ())
                cluster.push(
                    {"s": np.array(2, FLOAT32), "w": np.ones((2, 2), FLOAT32)},
                    loss=0.25,
                    examples=1,
                )
            end = cluster.pull()
            status = cluster.status()
            self.assertEqual(cluster.outcomes().accepted, 3)
        self.assertEqual(batches, [0, 1, 2])
        self.assertEqual(steps, [0, 1, 2])
        self.assertEqual(seen, [(0, 0), (-1, -2), (-2, -4)])
        self.assertEqual(status.phase, "DONE")
        self.assertEqual((status.global_step, status.total_steps), (3, 3))
        self.assertEqual((status.examples, status.train_loss), (3, 0.25))
        # Arrays stay valid after the cluster is closed.
        del cluster
        self.assertEqual(end["w"].tolist(), [[-3, -3], [-3, -3]])
        self.assertEqual(end["s"], -6)
        self.ps.await_end()

    def test_gradients_in_the_order_declared(self):
        cluster, batches = self.start(
            {
                "a": holdfast.Variable(1),
                "frozen": holdfast.Variable(1, trainable=False),
                "b": holdfast.Variable(2),
            }
        )
        cluster.push([ONE, 2 * np.ones(2, FLOAT32)], loss=0.0, examples=1)
        self.assertEqual(next(batches), 1)
        values = {name: value.tolist() for name, value in cluster.pull().items()}
        self.assertEqual(values, {"a": [-1], "frozen": [0], "b": [-2, -2]})

    def test_gradients_ahead_of_the_others(self):
        cluster, batches = self.start(
            {"a": holdfast.Variable(1), "b": holdfast.Variable(2), "c": holdfast.Variable(1)}
        )
        two = 2 * np.ones(2, FLOAT32)
        for _ in range(2):
            cluster.add({"b": two})
            with self.assertRaisesRegex(ValueError, 'gradient of "b" was handed in before'):
                cluster.add({"b": two})
            with self.assertRaisesRegex(ValueError, 'there is no trainable variable "d"'):
                cluster.add({"d": ONE})
            with self.assertRaisesRegex(ValueError, "no trainable variable b"):
                cluster.push({"a": ONE, "b": two, "c": ONE}, loss=0.0, examples=1)
            with self.assertRaisesRegex(ValueError, "3 gradients for 2 trainable variables: a, c"):
                cluster.push([ONE, two, ONE], loss=0.0, examples=1)
            cluster.push([ONE, 3 * ONE], loss=0.0, examples=1)
            next(batches)
        cluster.add({"a": ONE})
        cluster.skip()
        with self.assertRaisesRegex(holdfast.Error, "there is no current batch"):
            cluster.add({"a": ONE})
        values = {name: value.tolist() for name, value in cluster.pull().items()}
        self.assertEqual(values, {"a": [-2], "b": [-4, -4], "c": [-6]})

    def test_trace(self):
        with tempfile.TemporaryDirectory() as folder:
            with holdfast.connect(**self.ps.task(), trace=f"{folder}/%t.json") as cluster:
                declare(cluster, {"w": holdfast.Variable(1)})
                for _ in cluster.batches():
                    cluster.push([ONE], loss=0.0, examples=1)
            with open(f"{folder}/worker-0.json") as file:
                trace = json.load(file)
            with self.assertRaisesRegex(holdfast.Refused, "option trace: .*absent"):
                holdfast.connect(**self.ps.task(), trace=f"{folder}/absent/x")
        spans = [event for event in trace["traceEvents"] if event["ph"] == "X"]
        batches = [span["args"]["batch"] for span in spans if span["name"] == "gradient"]
        self.assertEqual(batches, [0, 1, 2])
        self.assertEqual([span["name"] for span in spans].count("PushPull"), 3)
        self.assertGreater(trace["otherData"]["rpc_seconds"], 0)

    def test_a_loss_that_is_not_known(self):
        cluster, batches = self.start({"w": holdfast.Variable(1)})
        cluster.push([ONE], loss=None, examples=1)
        next(batches)
        self.assertEqual(cluster.status().examples, 1)
        self.assertIsNone(cluster.status().train_loss)
        cluster.push([ONE], loss=0.0, examples=1)
        next(batches)
        self.assertEqual(cluster.status().train_loss, 0)

    def test_initializers(self):
        cluster, _ = self.start(
            {
                "constant": holdfast.Variable(2, holdfast.Constant(value=0.5)),
                "empty": holdfast.Variable((0, 4)),
            }
        )
        values = cluster.pull()
        self.assertEqual(values["constant"].tolist(), [0.5, 0.5])
        self.assertEqual(values["empty"].shape, (0, 4))

    def test_first_values(self):
        first = np.arange(6, dtype=FLOAT32).reshape(2, 3)
        cluster, _ = self.start(
            {
                "given": first.T,  # not C-contiguous
                "zeros": holdfast.Variable(2),
                "empty": np.zeros((0, 4), FLOAT32),
            }
        )
        expected = first.T.tolist()
        first[:] = 7  # the caller's own
        values = cluster.pull()
        self.assertEqual(values["given"].tolist(), expected)
        self.assertEqual(values["empty"].shape, (0, 4))

    def test_a_rate_of_0_is_a_rate(self):
        frozen = holdfast.Momentum(learning_rate=0.0, momentum=0.9)
        cluster, batches = self.start(
            {
                "a": holdfast.Variable(1),
                "frozen": holdfast.Variable(1, np.array([0.1], FLOAT32), optimizer=frozen),
                "scheduled": holdfast.Variable(
                    1,
                    np.array([0.3], FLOAT32),
                    optimizer=holdfast.Sgd(
                        learning_rate=0.0,
                        schedule=holdfast.Exponential(decay_steps=1, decay_rate=1e6),
                    ),
                ),
            }
        )
        for _ in range(3):
            cluster.push([ONE, ONE, ONE], loss=0.0, examples=1)
            next(batches, None)
        end = {name: value.tolist() for name, value in cluster.pull().items()}
        self.assertEqual(
            end, {"a": [-3.0], "frozen": [float(FLOAT32(0.1))], "scheduled": [float(FLOAT32(0.3))]}
        )

    def test_an_error_about_an_optimizer_names_its_variables(self):
        cluster = self.connect()
        bad = holdfast.Sgd(learning_rate=-0.5)
        variables = {"a": holdfast.Variable(1)}
        for name in "bcdefgh":
            variables[name] = holdfast.Variable(1, optimizer=bad)
        with self.assertRaises(holdfast.Refused) as caught:
            declare(cluster, variables)
        self.assertIn(
            "optimizers[1].learning_rate: must be at least 0, is -0.5", str(caught.exception)
        )
        self.assertIn(
            '(optimizers[1] is Sgd of "b", "c", "d", "e", "f", 2 more)', str(caught.exception)
        )
        self.assertEqual(caught.exception.exit_code, 2)

    def test_optimizers_of_variables(self):
        slow = holdfast.Sgd(learning_rate=0.5)
        cluster, batches = self.start(
            {"a": holdfast.Variable(1), "b": holdfast.Variable(1, optimizer=slow)}
        )
        cluster.push([ONE, ONE], loss=0.0, examples=1)
        next(batches)
        self.assertEqual([value.item() for value in cluster.pull().values()], [-1, -0.5])

    def test_values_are_read_only(self):
        cluster, _ = self.start({"w": holdfast.Variable(1)})
        with self.assertRaisesRegex(ValueError, "read-only"):
            cluster.pull()["w"][0] = 1
        copy = cluster.pull(copy=True)
        copy["w"][0] = 1
        self.assertEqual(cluster.pull()["w"], 0)

    def test_values_that_are_kept_stay_as_they_are(self):
        # A ps on this host lends large variables.
        ones = {"large": np.ones((100, 100), FLOAT32), "small": ONE}
        kept = []
        with holdfast.connect(**self.ps.task()) as cluster:
            variables = {name: holdfast.Variable(one.shape) for name, one in ones.items()}
            declare(cluster, variables, steps=5)
            for _ in cluster.batches():
                values = cluster.pull()
                self.assertFalse(values["large"].flags.writeable)
                self.assertIs(cluster.pull()["large"], values["large"])
                kept.append(values)
                cluster.push(ones, loss=0.0, examples=1)
            kept.append(cluster.pull())
        for name in ones:
            self.assertEqual([set(values[name].flat) for values in kept], [{-i} for i in range(6)])

    def test_pull_into(self):
        cluster, _ = self.start(
            {"w": holdfast.Variable(3, holdfast.Uniform(low=0, high=1)), "b": holdfast.Variable(1)}
        )
        into = {"w": np.zeros(3, FLOAT32)}
        first = cluster.pull(copy=True)["w"]
        self.assertIs(cluster.pull(into=into)["w"], into["w"])
        self.assertEqual(into["w"].tolist(), first.tolist())
        self.assertNotEqual(into["w"][0], 0)
        cluster.push([np.ones(3, FLOAT32), ONE], loss=0.0, examples=1)
        self.assertEqual(into["w"].tolist(), first.tolist())  # the caller's own
        for wrong, error in (
            ({"v": np.zeros(3, FLOAT32)}, 'there is no variable "v"'),
            ({"w": np.zeros(3)}, 'into "w": expected an array of float32'),
            ({"w": np.zeros(4, FLOAT32)}, r'into "w" has shape \(4,\), declared \(3,\)'),
        ):
            with self.assertRaisesRegex((TypeError, ValueError), error):
                cluster.pull(into=wrong)

    def test_after_a_push_the_next_values_are_here(self):
        cluster, _ = self.start({"w": holdfast.Variable(1)})
        before = cluster.pull()["w"]
        cluster.push([ONE], loss=0.0, examples=1)
        self.assertEqual((before.item(), cluster.pull()["w"].item()), (0, -1))

    def test_layouts(self):
        cluster, batches = self.start({"w": holdfast.Variable((2, 3))}, steps=6)
        gradient = np.arange(6, dtype=FLOAT32).reshape(2, 3)
        read_only = gradient.copy()
        read_only.flags.writeable = False

        class Tensor:
            def __array__(self, dtype=None):
                return gradient

        for layout in (
            gradient,
            np.asfortranarray(gradient),
            np.repeat(gradient, 2, axis=1)[:, ::2],
            read_only,
            Tensor(),
            gradient.tolist(),
        ):
            if isinstance(layout, list):
                with self.assertRaisesRegex(TypeError, "dtype float64"):
                    cluster.push([layout], loss=0.0, examples=1)
                continue
            cluster.push([layout], loss=0.0, examples=1)
            next(batches)
        self.assertEqual(cluster.pull()["w"].tolist(), (-5 * gradient).tolist())

    def test_wrong_gradients(self):
        cluster, _ = self.start({"w": holdfast.Variable(3), "b": holdfast.Variable(1)})
        good = np.zeros(3, FLOAT32)
        for wrong, error in (
            ({"w": np.zeros(3), "b": ONE}, 'gradient of "w" has dtype float64, not float32'),
            ({"w": good.astype(int), "b": ONE}, 'gradient of "w" has dtype int64'),
            ({"w": good.reshape(3, 1), "b": ONE}, r'"w" has shape \(3, 1\), declared \(3,\)'),
            ({"w": good}, "there is no gradient of b"),
            ({"w": good, "c": ONE}, "there is no gradient of b"),
            ({"w": good, "b": ONE, "c": ONE}, "there is no trainable variable c"),
            ([good], "1 gradients for 2 trainable variables: w, b"),
        ):
            with self.assertRaisesRegex((TypeError, ValueError), error):
                cluster.push(wrong, loss=0.0, examples=1)
        # None of that was sent, and the turn still belongs to this worker.
        cluster.push({"w": good, "b": ONE}, loss=0.0, examples=1)
        self.assertEqual(cluster.pull()["b"], -1)

    def test_wrong_arguments(self):
        cluster, batches = self.start({"w": holdfast.Variable(1)})
        nan, infinity = math.nan, math.inf
        for wrong, error in (
            ({"examples": 2.0}, "examples is 2.0; it must be an int"),
            ({"examples": True}, "examples is True; it must be an int"),
            ({"examples": "2"}, "examples is '2'; it must be an int"),
            ({"examples": None}, "examples is None; it must be an int"),
            ({"examples": -1}, "examples is -1; it must be from 0 to 1000000000000"),
            ({"examples": 2**64 + 3}, "examples is 18446744073709551619; it must be from 0"),
            ({"examples": 10**12 + 1}, "examples is 1000000000001; it must be from 0"),
            ({"clip_factor": nan}, "clip_factor is nan; it must be from 0 to 1"),
            ({"clip_factor": infinity}, "clip_factor is inf; it must be from 0 to 1"),
            ({"clip_factor": -0.5}, "clip_factor is -0.5; it must be from 0 to 1"),
            ({"clip_factor": 1.5}, "clip_factor is 1.5; it must be from 0 to 1"),
            ({"clip_factor": "1"}, "clip_factor is '1'; it must be a number"),
            ({"loss": "0.5"}, "loss is '0.5'; it must be a number"),
            ({"loss": [0.5, 0.5]}, r"loss is \[0.5, 0.5\]; it must be a number"),
        ):
            with self.subTest(error), self.assertRaisesRegex((TypeError, ValueError), error):
                cluster.push([ONE], **{"loss": 0.0, "examples": 1, **wrong})
        # None of that was handed in.
        cluster.push([ONE], loss=np.float32(0.5), examples=np.int64(2), clip_factor=np.float32(0.5))
        self.assertEqual(next(batches), 1)
        self.assertEqual(cluster.pull()["w"], -0.5)
        self.assertEqual(cluster.outcomes().accepted, 1)
        for arguments, error in (
            ({"step": -1}, "step is -1; it must be from 0"),
            ({"step": 1.0}, "step is 1.0; it must be an int"),
            ({"examples": 2**64}, "examples is 18446744073709551616; it must be from 0"),
            ({"loss": "low"}, "loss is 'low'; it must be a number"),
            ({"metrics": {"rank": [1]}}, r"rank is \[1\]; it must be a number"),
        ):
            with self.subTest(error), self.assertRaisesRegex((TypeError, ValueError), error):
                cluster.report_evaluation(**{"step": 0, "examples": 1, "loss": 0.0, **arguments})

    def test_wrong_declarations(self):
        cluster = self.connect()
        for wrong, error in (
            ({"steps": 2.0}, "steps is 2.0; it must be an int"),
            ({"steps": -1}, "steps is -1; it must be from 0"),
            ({"seed": -1}, "seed is -1; it must be from 0"),
            ({"seed": 2**64 + 3}, "seed is 18446744073709551619; it must be from 0"),
            ({"max_consecutive_not_finite": -1}, "not_finite: expected a number from 0 to"),
        ):
            with self.subTest(error), self.assertRaisesRegex((TypeError, ValueError), error):
                declare(cluster, {"w": holdfast.Variable(1)}, **wrong)
        for shape in (-1, (3, -2), 2**63):
            with self.assertRaisesRegex(ValueError, r"shape: sizes are from 0 to 2\*\*63 - 1"):
                holdfast.Variable(shape)

    def test_variables_without_elements(self):
        variables = {
            "empty": holdfast.Variable(0),
            "w": holdfast.Variable(1),
            "flat": np.zeros((2, 0), FLOAT32),
        }
        cluster, _ = self.start(variables)
        empty, flat = np.zeros(0, FLOAT32), np.zeros((2, 0), FLOAT32)
        cluster.push({"flat": flat, "w": ONE, "empty": empty}, loss=0.0, examples=1)
        next(batches := cluster.batches())
        cluster.push([empty, ONE, flat], loss=0.0, examples=1)
        next(batches)
        cluster.add({"flat": flat, "w": ONE})
        cluster.push([empty], loss=0.0, examples=1)
        self.assertEqual(list(batches), [])
        values = cluster.pull()
        self.assertEqual({name: value.shape for name, value in values.items()},
                         {"empty": (0,), "w": (1,), "flat": (2, 0)})  # fmt: skip
        self.assertEqual(values["w"], -3)
        cluster.close()
        self.ps.await_end()
        checkpoint = holdfast.load_checkpoint(self.ps.checkpoints)
        self.assertEqual(checkpoint.step, 3)
        self.assertEqual(holdfast.digest(checkpoint.values), holdfast.digest(values))

    def test_the_same_memory_again(self):
        # Known arrays are not checked again, but read again.
        cluster, batches = self.start({"w": holdfast.Variable(1)}, steps=4)
        gradient = np.zeros(1, FLOAT32)
        for value in (1, 10, 100):
            gradient[0] = value
            cluster.push([gradient], loss=0.0, examples=1)
            next(batches)
        self.assertEqual(cluster.pull()["w"], -111)

    def test_each_batch_is_answered_once(self):
        cluster, batches = self.start({"w": holdfast.Variable(1)})
        with self.assertRaisesRegex(holdfast.Error, "batch 0 was neither pushed nor skipped"):
            next(batches)
        # Another iteration hands it out again.
        batches = cluster.batches()
        self.assertEqual(next(batches), 0)
        cluster.push([ONE], loss=0.0, examples=1)
        with self.assertRaisesRegex(holdfast.Error, "pushed already"):
            cluster.push([ONE], loss=0.0, examples=1)
        with self.assertRaisesRegex(holdfast.Error, "pushed already"):
            cluster.skip()
        self.assertEqual(next(batches), 1)

    def test_skip(self):
        cluster, batches = self.start({"w": holdfast.Variable(1)})
        cluster.skip()
        self.assertEqual(next(batches), 1)
        self.assertEqual(cluster.pull()["w"], 0)

    def test_left_and_gone_on_with(self):
        cluster = self.connect()
        declare(cluster, {"w": holdfast.Variable(1)}, steps=4)
        seen = []
        for batch in cluster.batches():
            seen.append(batch)
            cluster.push([ONE], loss=0.0, examples=1)
            if batch == 1:
                break
        for batch in cluster.batches():
            seen.append(batch)
            cluster.push([ONE], loss=0.0, examples=1)
        self.assertEqual(seen, [0, 1, 2, 3])
        self.assertEqual(cluster.pull()["w"], -4)
        self.assertEqual(list(cluster.batches()), [])

    def test_not_finite(self):
        cluster, batches = self.start({"w": holdfast.Variable(1)})
        cluster.push([ONE * np.nan], loss=0.0, examples=1)
        next(batches)
        cluster.push([ONE], loss=float("inf"), examples=1)
        next(batches)
        self.assertEqual(cluster.pull()["w"], 0)
        self.assertEqual(cluster.outcomes().not_finite, 2)

    def test_clipping(self):
        cluster, batches = self.start(
            {"w": holdfast.Variable(2)}, clipping=holdfast.GradientClipping(global_norm=1)
        )
        cluster.push([np.array([3, 4], FLOAT32)], loss=0.0, examples=1)
        next(batches)
        np.testing.assert_allclose(cluster.pull()["w"], [-0.6, -0.8], rtol=1e-6)
        cluster.push([np.array([3, 4], FLOAT32)], loss=0.0, examples=1, clip_factor=1.0)
        next(batches)
        np.testing.assert_allclose(cluster.pull()["w"], [-3.6, -4.8], rtol=1e-6)

    def test_checkpoints(self):
        cluster, batches = self.start({"w": holdfast.Variable((1, 2))})
        cluster.push([np.ones((1, 2), FLOAT32)], loss=0.0, examples=1)
        next(batches)
        self.assertEqual(cluster.checkpoint(), 1)
        self.assertEqual(cluster.status().durable_step, 1)
        checkpoint = holdfast.load_checkpoint(self.ps.checkpoints)
        self.assertEqual(checkpoint.step, 1)
        self.assertEqual(checkpoint.values["w"].tolist(), [[-1, -1]])
        checkpoint.values["w"][0, 0] = 7  # the caller's to change
        self.assertEqual(holdfast.digest(cluster.pull()), holdfast.digest(
            holdfast.load_checkpoint(self.ps.checkpoints).values))  # fmt: skip

    def test_evaluation(self):
        cluster, _ = self.start({"w": holdfast.Variable(1)})
        cluster.report_evaluation(step=0, examples=100, loss=0.5, accuracy=0.875)
        evaluation = cluster.status().everything["evaluation"]
        self.assertEqual((evaluation["loss"], evaluation["accuracy"]), (0.5, 0.875))
        self.assertNotIn("mean_absolute_error", evaluation)
        figures = {
            "accuracy": 0.25,
            "mean_absolute_error": 1.5,
            "mean_squared_error": 2.5,
            "top_k_accuracy": 0.5,
            "auc": 0.75,
            "calibration": 1.25,
        }
        cluster.report_evaluation(
            step=0, examples=7, loss=2.0, metrics={"f1": 0.625, "bleu": 20}, **figures
        )
        evaluation = cluster.status().everything["evaluation"]
        self.assertEqual({name: evaluation[name] for name in figures}, figures)
        self.assertEqual(evaluation["metrics"], {"f1": 0.625, "bleu": 20})
        self.assertEqual(evaluation["examples"], "7")

    def test_who_evaluates(self):
        cluster, _ = self.start({"w": holdfast.Variable(1)})
        with self.assertRaisesRegex(holdfast.Refused, "worker/task:0 is not an evaluator"):
            cluster.evaluate(lambda variables, step: 0.0, checkpoint_dir=self.ps.checkpoints)

    def test_a_client_reads(self):
        self.start({"w": holdfast.Variable(1, holdfast.Constant(value=3.0))})
        with holdfast.connect(self.ps.spec, job_name="client") as client:
            self.assertEqual(client.pull()["w"], 3)
            self.assertEqual(client.status().phase, "TRAINING")

    def test_loss_scale(self):
        cluster, _ = self.start(
            {"w": holdfast.Variable(1)}, loss_scale=holdfast.LossScale(initial=1024)
        )
        self.assertEqual(cluster.loss_scale, 1024)

    def test_misuse(self):
        cluster = self.connect()
        with self.assertRaisesRegex(holdfast.Error, "no current batch"):
            cluster.push([], loss=0.0, examples=1)
        with self.assertRaisesRegex(holdfast.Error, "no current batch"):
            cluster.skip()
        with self.assertRaisesRegex(TypeError, "belongs to one process"):
            pickle.dumps(cluster)
        cluster.close()
        cluster.close()
        for use in (
            cluster.status,
            cluster.checkpoint,
            cluster.pull,
            cluster.skip,
            cluster.outcomes,
            lambda: cluster.step,
            lambda: next(cluster.batches()),
            lambda: cluster.push([], loss=0.0, examples=1),
            lambda: declare(cluster, {"w": holdfast.Variable(1)}),
            lambda: cluster.report_evaluation(step=0, examples=1, loss=0.0),
            cluster.__enter__,
        ):
            with self.assertRaisesRegex(holdfast.Error, "the cluster was closed"):
                use()

    def test_refused(self):
        cluster = self.connect()
        with self.assertRaisesRegex(holdfast.Refused, "learning_rate") as caught:
            declare(cluster, {"w": holdfast.Variable(1)}, learning_rate=-1.0)
        self.assertEqual(caught.exception.exit_code, 2)
        self.assertEqual(caught.exception.what, str(caught.exception))


class WrongPlacesTest(unittest.TestCase):
    def test_refused(self):
        spec = {"ps": ["127.0.0.1:1"], "worker": ["127.0.0.1:2"]}
        for arguments, error in (
            ({"cluster": spec}, "task"),
            ({"cluster": spec, "job_name": "worker", "task_index": 3}, "task"),
            ({"cluster": "{", "job_name": "worker", "task_index": 0}, "cluster_spec"),
            ({"cluster": "/nonexistent.json", "job_name": "worker", "task_index": 0}, "nonexist"),
            ({"cluster": spec, "job_name": "worker", "task_index": 0, "tls_dir": "/none"}, "none"),
            (
                {"ps_hosts": "ps-0.example.com:1", "worker_hosts": "a:1", "job_name": "worker",
                 "task_index": 0},
                "insecure",
            ),
        ):  # fmt: skip
            with self.subTest(arguments=arguments):
                with self.assertRaisesRegex((holdfast.Refused, FileNotFoundError), error):
                    holdfast.connect(**arguments)

    def test_nobody_there(self):
        with self.assertRaisesRegex(holdfast.Unavailable, "/job:ps/task:0") as caught:
            holdfast.connect(
                {"ps": ["127.0.0.1:1"], "worker": ["127.0.0.1:2"]},
                job_name="worker",
                task_index=0,
                connect_timeout=0.2,
            )
        self.assertEqual(caught.exception.task, "/job:ps/task:0")
        self.assertEqual(caught.exception.exit_code, 138)

    def test_no_checkpoint(self):
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaises(FileNotFoundError):
                holdfast.load_checkpoint(folder + "/none")


class SeveralWorkersTest(unittest.TestCase):
    def run_script(self, workers, *, num_ps=2, steps, consistency):
        with LocalCluster(num_ps, workers) as ps:
            text = SCRIPT.format(steps=steps, consistency=consistency)
            scripts = [ps.run(text, i) for i in range(workers)]
            results = [script.result() for script in scripts]
            ps.await_end()
        for result in results[1:]:
            self.assertEqual(result["values"], results[0]["values"])
        return results

    def check_values(self, result, total):
        self.assertEqual(result["values"], {"w": [-total] * 3, "b": [5 - total] * 2})

    def test_synchronous(self):
        results = self.run_script(2, steps=5, consistency="holdfast.Synchronous()")
        for replica, result in enumerate(results):
            self.assertEqual(result["replica"], replica)
            self.assertEqual(result["batches"], [2 * step + replica for step in range(5)])
            self.assertEqual(result["accepted"], 5)
        # Means of two consecutive numbers.
        self.check_values(results[0], sum(range(1, 11)) / 2)

    def test_several_seats(self):
        results = self.run_script(
            2,
            steps=3,
            consistency='holdfast.Synchronous(replicas_to_aggregate=4, aggregation="sum")',
        )
        for replica, result in enumerate(results):
            expected = [4 * step + seat for step in range(3) for seat in (replica, replica + 2)]
            self.assertEqual(result["batches"], expected)
        self.check_values(results[0], sum(range(1, 13)))

    def test_synchronous_by_ticket(self):
        consistency = 'holdfast.Synchronous(), examples="by_ticket"'
        results = self.run_script(2, steps=5, consistency=consistency)
        batches = sorted(batch for result in results for batch in result["batches"])
        self.assertEqual(batches, list(range(10)))
        self.check_values(results[0], sum(range(1, 11)) / 2)

    def check_asynchronous(self, consistency):
        results = self.run_script(3, steps=40, consistency=consistency)
        batches = sorted(batch for result in results for batch in result["batches"])
        self.assertEqual(batches, list(range(40)))
        # Each counts once, even if a worker uses the same memory for all.
        self.check_values(results[0], sum(range(1, 41)))

    def test_asynchronous(self):
        self.check_asynchronous("holdfast.Asynchronous()")

    def test_bounded(self):
        self.check_asynchronous("holdfast.Asynchronous(staleness_bound=1)")

    def test_pipelined(self):
        self.check_asynchronous("holdfast.Asynchronous(pipeline_depth=3)")

    def test_another_declaration_is_refused(self):
        with LocalCluster(1, 2) as ps:
            text = SCRIPT.format(steps=5, consistency="holdfast.Synchronous()")
            chief = ps.run(text, 0)
            other = ps.run(text.replace("learning_rate=1.0", "learning_rate=0.5"), 1)
            self.assertEqual(other.wait(), 2, other.output)
            self.assertIn("holdfast.Refused: ", other.output)
            self.assertIn("learning_rate", other.output)
            # The job is not affected.
            other = ps.run(text, 1)
            self.check_values(chief.result(), sum(range(1, 11)) / 2)
            self.check_values(other.result(), sum(range(1, 11)) / 2)
            ps.await_end()

    def test_first_values_are_the_chiefs(self):
        with LocalCluster(1, 2) as ps:
            text = SCRIPT.format(steps=1, consistency="holdfast.Synchronous()")
            constant = "holdfast.Variable(2, holdfast.Constant(value=5.0))"
            chief = ps.run(text.replace(constant, "np.full(2, 5, np.float32)"), 0)
            other = ps.run(text.replace(constant, "np.full(2, 7, np.float32)"), 1)
            self.check_values(chief.result(), 1.5)
            self.check_values(other.result(), 1.5)


if __name__ == "__main__":
    unittest.main()
