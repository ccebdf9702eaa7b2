# SPDX-License-Identifier: Apache-2.0

"""The text that declare writes, read by protobuf with the messages of proto/."""

import dataclasses
import glob
import subprocess
import tempfile
import typing
import unittest

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

import holdfast
from holdfast import job


def read_protos():
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run(
            ["protoc", "--proto_path=.", "--include_imports", f"--descriptor_set_out={out.name}",
             *glob.glob("proto/*.proto")],
            check=True,
        )  # fmt: skip
        files = descriptor_pb2.FileDescriptorSet.FromString(out.read())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return pool


PROTOS = read_protos()


def parse(text, name="Declaration"):
    descriptor = PROTOS.FindMessageTypeByName("holdfast.proto." + name)
    message = message_factory.MessageFactory(PROTOS).GetPrototype(descriptor)()
    text_format.Parse(text, message)
    return message


def declare(variables, optimizer=None, **fields):
    declared = job.variables_of(variables)
    optimizer = optimizer or job.Sgd(learning_rate=0.1)
    fields = {"consistency": job.Synchronous(), "total_steps": 5, **fields}
    text = job.declaration_text(
        declared, job.Job(optimizers=job.optimizers_of(declared.values(), optimizer), **fields)
    )
    return parse(text)


def subclasses(cls):
    for one in cls.__subclasses__():
        yield one
        yield from subclasses(one)


# The message written by a class.
MESSAGES = {
    "Initializer": "Initializer",
    "LearningRateSchedule": "LearningRateSchedule",
    "Optimizer": "Optimizer",
    "Consistency": "Consistency",
    "Partitioner": "Partitioner",
    "GradientClipping": "GradientClipping",
    "LossScale": "LossScale",
    "Compression": "Compression",
    "Timeouts": "Timeouts",
    "LostWorkers": "LostWorkers",
    "Checkpoints": "Checkpoints",
    "Evaluation": "Evaluation",
    "KeepBest": "KeepBest",
    "EarlyStopping": "EarlyStopping",
    "Metric": "Metric",
    "Piece": "LearningRateSchedule.Piecewise.Piece",
    "Job": "Declaration",
}


class VocabularyTest(unittest.TestCase):
    """Names are the proto's: none is missing, none is too many."""

    def test_every_field_is_one_of_the_message(self):
        # Fields that Python does not need: `variables` are written by name; the rest is filled in.
        elsewhere = {
            "Compression": {"variables"},
            "Declaration": {"variables", "tables", "num_workers", "total_tickets"},
        }
        seen = 0
        for cls in subclasses(job.Message):
            base = next(c for c in cls.__mro__ if c.__name__ in MESSAGES)
            name = MESSAGES[base.__name__]
            message = PROTOS.FindMessageTypeByName("holdfast.proto." + name)
            outer = {field.name for field in message.fields}
            fields = {field.name for field in dataclasses.fields(cls)}
            inner = set()
            if cls._kind:
                self.assertIn(cls._kind, outer)
                kind = message.fields_by_name[cls._kind].message_type
                inner = {field.name for field in kind.fields}
            for field in fields:
                beside = field in cls._beside_kind or not cls._kind
                self.assertIn(field, outer if beside else inner, cls.__name__)
            missing = inner - fields
            if not cls._kind and not message.oneofs:
                missing |= outer - fields - elsewhere.get(name, set())
            self.assertEqual(missing, set(), cls.__name__)
            seen += 1
        self.assertGreater(seen, 30)

    def test_every_kind_has_a_class(self):
        for base, name in MESSAGES.items():
            message = PROTOS.FindMessageTypeByName("holdfast.proto." + name)
            kinds = {
                field.name
                for oneof in message.oneofs
                if not oneof.name.startswith("_")
                for field in oneof.fields
                if field.message_type is not None
            }
            classes = {cls._kind for cls in subclasses(getattr(job, base))}
            if base == "Initializer":
                classes.add("given")  # arrays
            self.assertEqual(kinds, classes - {""}, base)

    def test_choices_are_the_enums(self):
        for cls in subclasses(job.Message):
            for field, hint in typing.get_type_hints(cls).items():
                for option in job._options(hint):
                    if typing.get_origin(option) is not typing.Literal:
                        continue
                    for word in typing.get_args(option):
                        values = {
                            value.name
                            for file in ("training", "cluster")
                            for value in self.enum_values(f"proto/{file}.proto")
                        }
                        self.assertIn(word.upper(), values, f"{cls.__name__}.{field}")

    def enum_values(self, file):
        described = PROTOS.FindFileByName(file)
        for enum in described.enum_types_by_name.values():
            yield from enum.values
        todo = list(described.message_types_by_name.values())
        while todo:
            message = todo.pop()
            todo.extend(message.nested_types)
            for enum in message.enum_types:
                yield from enum.values


class TextTest(unittest.TestCase):
    def test_variables(self):
        declared = declare(
            {
                "dense/kernel": holdfast.Variable((784, 10), job.Glorot(distribution="normal")),
                "scalar": holdfast.Variable(()),
                "given": np.ones((2, 3), np.float32),
                "mean": holdfast.Variable(4, moving_average=0.99, trainable=True),
                "frozen": holdfast.Variable(
                    4,
                    holdfast.Constant(value=0.5),
                    trainable=False,
                    compression=holdfast.Compression(push="top_k", top_k=0.02, pull="bfloat16"),
                    partitioner=holdfast.FixedShards(shards=2),
                ),
            }
        )
        kernel, scalar, given, mean, frozen = declared.variables
        self.assertEqual(kernel.name, "dense/kernel")
        self.assertEqual(list(kernel.shape), [784, 10])
        self.assertEqual(kernel.dtype, 1)
        self.assertEqual(kernel.initializer.glorot.distribution, 1)
        self.assertFalse(kernel.HasField("trainable"))
        self.assertEqual(list(scalar.shape), [])
        self.assertTrue(scalar.initializer.HasField("zeros"))
        self.assertTrue(given.initializer.HasField("given"))
        self.assertEqual(list(given.shape), [2, 3])
        self.assertAlmostEqual(mean.moving_average.momentum, 0.99, places=6)
        self.assertTrue(frozen.HasField("trainable"))
        self.assertFalse(frozen.trainable)
        self.assertEqual(frozen.initializer.constant.value, 0.5)
        self.assertEqual(frozen.compression.push, 4)
        self.assertEqual(frozen.compression.top_k, 0.02)
        self.assertEqual(frozen.compression.pull, 2)
        self.assertEqual(frozen.partitioner.fixed_shards.shards, 2)

    def test_optimizers_of_variables(self):
        adam = holdfast.Adam(learning_rate=0.001)
        declared = declare(
            {
                "a": holdfast.Variable(1),
                "b": holdfast.Variable(1, optimizer=adam),
                "c": holdfast.Variable(1, optimizer=holdfast.Adam(learning_rate=0.001)),
                "d": holdfast.Variable(1, optimizer=holdfast.Sgd(learning_rate=0.2)),
            }
        )
        self.assertEqual([v.optimizer for v in declared.variables], [0, 1, 1, 2])
        self.assertEqual([o.WhichOneof("update") for o in declared.optimizers],
                         ["sgd", "adam", "sgd"])  # fmt: skip

    def test_a_rate_of_0_is_written(self):
        for rate in (0, 0.0, np.float32(0)):
            declared = declare({"a": holdfast.Variable(1)}, holdfast.Sgd(learning_rate=rate))
            self.assertTrue(declared.optimizers[0].HasField("learning_rate"))

    def test_optimizer_and_schedule(self):
        declared = declare(
            {"a": holdfast.Variable(1)},
            holdfast.Momentum(
                learning_rate=0.1,
                momentum=0.9,
                nesterov=True,
                weight_decay=1e-4,
                schedule=holdfast.Cosine(decay_steps=9500, alpha=0.01, warmup_steps=500),
            ),
        )
        (optimizer,) = declared.optimizers
        self.assertEqual(optimizer.learning_rate, np.float32(0.1))
        self.assertEqual(optimizer.momentum.momentum, np.float32(0.9))
        self.assertTrue(optimizer.momentum.nesterov)
        self.assertEqual(optimizer.weight_decay, np.float32(1e-4))
        self.assertEqual(optimizer.schedule.warmup_steps, 500)
        self.assertEqual(optimizer.schedule.cosine.decay_steps, 9500)
        pieces = (
            holdfast.Piece(from_step=10, learning_rate=0.5),
            holdfast.Piece(from_step=20, learning_rate=0.25),
        )
        schedule = parse(holdfast.Piecewise(pieces=pieces).text(), "LearningRateSchedule")
        self.assertEqual([piece.from_step for piece in schedule.piecewise.pieces], [10, 20])
        adamw = parse(holdfast.AdamW(learning_rate=1, weight_decay=0.5).text(), "Optimizer")
        self.assertEqual((adamw.weight_decay, adamw.adamw.weight_decay), (0, 0.5))

    def test_job(self):
        declared = declare(
            {"a": holdfast.Variable(1)},
            total_steps=np.int64(7),
            seed=2**63,
            consistency=holdfast.Asynchronous(staleness_bound=0, pipeline_depth=2),
            placement="greedy_by_bytes",
            examples="by_ticket",
            clipping=holdfast.GradientClipping(global_norm=1),
            lost_workers=holdfast.LostWorkers(policy="continue", min_replicas=2),
            checkpoints=holdfast.Checkpoints(every_steps=10, keep=3),
            timeouts=holdfast.Timeouts(step_seconds=1.5),
            partitioner=holdfast.MinSize(max_shards=3),
            loss_scale=holdfast.LossScale(),
            max_consecutive_not_finite=0,
        )
        self.assertEqual(declared.total_steps, 7)
        self.assertEqual(declared.seed, 2**63)
        # Not the same as being absent.
        self.assertTrue(declared.consistency.asynchronous.HasField("staleness_bound"))
        self.assertEqual(declared.placement, 1)
        self.assertEqual(declared.examples, 2)
        self.assertEqual(declared.clipping.global_norm, 1)
        self.assertEqual(declared.lost_workers.policy, 2)
        self.assertEqual(declared.checkpoints.every_steps, 10)
        self.assertEqual(declared.timeouts.step_seconds, 1.5)
        self.assertTrue(declared.HasField("loss_scale"))
        self.assertTrue(declared.HasField("max_consecutive_not_finite"))

    def test_names_are_quoted(self):
        declared = declare({'a"\\\n': holdfast.Variable(1)})
        self.assertEqual(declared.variables[0].name, 'a"\\\n')


class WrongTest(unittest.TestCase):
    def test_types_are_named(self):
        for make, message in (
            (lambda: job.Sgd(learning_rate="0.1"), "Sgd.learning_rate: expected float, got '0.1'"),
            (lambda: job.Adam(learning_rate=1, beta1=True), "Adam.beta1: expected float or None"),
            (
                lambda: holdfast.Sgd(learning_rate=1, schedule=0.5),
                "Sgd.schedule: expected LearningRateSchedule or None, got 0.5",
            ),
            (
                lambda: holdfast.Synchronous(aggregation="average"),
                "Synchronous.aggregation: expected 'mean' or 'sum', got 'average'",
            ),
            (
                lambda: holdfast.Asynchronous(staleness_bound=1.5),
                "Asynchronous.staleness_bound: expected int or None, got 1.5",
            ),
            (lambda: holdfast.Variable("ab"), "shape: expected an int or several, got 'ab'"),
            (lambda: holdfast.Variable(1, optimizer=0.1), "optimizer: expected Optimizer or None"),
        ):  # fmt: skip
            with self.subTest(message), self.assertRaises(TypeError) as caught:
                make()
            self.assertIn(message, str(caught.exception))

    def test_first_values(self):
        with self.assertRaisesRegex(TypeError, 'variable "w": first values have dtype float64'):
            declare({"w": np.zeros(3)})
        with self.assertRaisesRegex(ValueError, r"first values have shape \(3,\), declared \(2,\)"):
            holdfast.Variable(2, np.zeros(3, np.float32))

    def test_first_values_are_copied(self):
        values = np.zeros(3, np.float32)
        variable = holdfast.Variable(3, values)
        values[:] = 1
        self.assertEqual(variable.value.tolist(), [0, 0, 0])


if __name__ == "__main__":
    unittest.main()
