# SPDX-License-Identifier: Apache-2.0

"""The vocabulary of a job: thin dataclasses that write its declaration as a textproto.

Names, fields and defaults are those of ``proto/training.proto``, described in
docs/job_file.md; ``None`` means the cluster's default. Types are checked here, all other
rules by the cluster, whose errors name the field.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import numbers
import re
import types
import typing
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, cast

import numpy as np
import numpy.typing as npt

Float32Array = npt.NDArray[np.float32]

EpsilonForm = Literal["epsilon_tensorflow", "epsilon_pytorch"]
Encoding = Literal["exact", "float16", "bfloat16", "int8", "top_k"]

# Names that an error lists.
_MAX_NAMES = 5


@functools.cache
def _hints(cls: Hashable) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _options(hint: Any) -> tuple[Any, ...]:
    """The members of a union, or the type itself."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return typing.get_args(hint)
    return (hint,)


def _fits(value: object, hint: Any) -> bool:
    origin = typing.get_origin(hint)
    if origin is Literal:
        return isinstance(value, str) and value in typing.get_args(hint)
    if origin is tuple:
        member = typing.get_args(hint)[0]
        return isinstance(value, tuple) and all(_fits(one, member) for one in value)
    if hint is bool:
        return isinstance(value, bool)
    if isinstance(value, bool):
        return False
    if hint is float:
        return isinstance(value, numbers.Real)
    if hint is int:
        return isinstance(value, numbers.Integral)
    return isinstance(value, origin or hint)


def _name_of(hint: Any) -> str:
    if typing.get_origin(hint) is Literal:
        return " or ".join(map(repr, typing.get_args(hint)))
    if typing.get_origin(hint) is tuple:
        return f"a tuple of {_name_of(typing.get_args(hint)[0])}"
    if hint is type(None):
        return "None"
    return str(getattr(hint, "__name__", hint))


def field_text(name: str, value: object, *, is_enum: bool = False) -> str:
    """One field of a message as text; nothing for None."""
    if value is None:
        return ""
    if isinstance(value, Message):
        body = value.text()
        return f"{name} {{ {body} }}" if body else f"{name} {{}}"
    if isinstance(value, (tuple, list)):
        return " ".join(field_text(name, one) for one in value)
    if isinstance(value, bool):
        return f"{name}: {'true' if value else 'false'}"
    if isinstance(value, numbers.Integral):
        return f"{name}: {int(value)}"
    if isinstance(value, numbers.Real):
        return f"{name}: {float(value)!r}"
    assert isinstance(value, str)
    return f"{name}: {value.upper() if is_enum else json.dumps(value)}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Message:
    """A message of proto/training.proto."""

    # The member of the message's oneof that the class represents, if the message has one ...
    _kind: ClassVar[str] = ""
    # ... and the fields outside the oneof.
    _beside_kind: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        hints = _hints(cast(Hashable, type(self)))
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            options = _options(hints[field.name])
            if not any(_fits(value, option) for option in options):
                raise TypeError(
                    f"{type(self).__name__}.{field.name}: expected "
                    f"{' or '.join(map(_name_of, options))}, got {value!r}"
                )
            if (
                int in options
                and isinstance(value, numbers.Integral)
                and not 0 <= int(value) < 2**64
            ):
                raise ValueError(
                    f"{type(self).__name__}.{field.name}: expected a number from 0 to 2**64 - 1, "
                    f"got {value!r}"
                )

    def text(self) -> str:
        """The message as a textproto."""
        inside: list[str] = []
        beside: list[str] = []
        hints = _hints(cast(Hashable, type(self)))
        for field in dataclasses.fields(self):
            is_enum = any(typing.get_origin(o) is Literal for o in _options(hints[field.name]))
            text = field_text(field.name, getattr(self, field.name), is_enum=is_enum)
            if text:
                (beside if field.name in self._beside_kind else inside).append(text)
        if not self._kind:
            return " ".join(beside + inside)
        body = f" {' '.join(inside)} " if inside else ""
        return " ".join([*beside, f"{self._kind} {{{body}}}"])


# Initializers


@dataclasses.dataclass(frozen=True, kw_only=True)
class Initializer(Message):
    """First values made by the cluster, only from the job's seed and the variable's name."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Zeros(Initializer):
    """All elements 0."""

    _kind = "zeros"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Constant(Initializer):
    """All elements ``value``."""

    _kind = "constant"
    value: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Uniform(Initializer):
    """Uniform on [low, high)."""

    _kind = "uniform"
    low: float
    high: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Normal(Initializer):
    """Normal distribution."""

    _kind = "normal"
    mean: float = 0.0
    stddev: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class TruncatedNormal(Initializer):
    """Normal distribution, truncated at two standard deviations from the mean."""

    _kind = "truncated_normal"
    mean: float = 0.0
    stddev: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Glorot(Initializer):
    """Variance 2 / (fan_in + fan_out) (Glorot and Bengio 2010)."""

    _kind = "glorot"
    distribution: Literal["uniform", "normal"] = "uniform"


@dataclasses.dataclass(frozen=True, kw_only=True)
class He(Initializer):
    """Variance 2 / fan_in (He et al. 2015)."""

    _kind = "he"
    distribution: Literal["uniform", "normal"] = "uniform"


# Learning rates and optimizers


@dataclasses.dataclass(frozen=True, kw_only=True)
class LearningRateSchedule(Message):
    """Learning rate by global step: a linear warm-up, then the optimizer's ``learning_rate``.

    During the first ``warmup_steps`` steps the rate rises linearly from
    ``warmup_start_rate`` to ``learning_rate``. Subclasses define the rate after that, with
    steps counted from the end of the warm-up.
    """

    _beside_kind = ("warmup_steps", "warmup_start_rate")
    warmup_steps: int | None = None
    warmup_start_rate: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Piece(Message):
    """A constant ``learning_rate`` from step ``from_step`` on."""

    from_step: int
    learning_rate: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Piecewise(LearningRateSchedule):
    """The optimizer's ``learning_rate`` up to the first piece, then each piece's."""

    _kind = "piecewise"
    pieces: tuple[Piece, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exponential(LearningRateSchedule):
    """``learning_rate`` x ``decay_rate`` ^ (step / ``decay_steps``).

    With ``staircase`` the exponent is rounded down to a whole number.
    """

    _kind = "exponential"
    decay_steps: int
    decay_rate: float
    staircase: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Polynomial(LearningRateSchedule):
    """From ``learning_rate`` to ``end_learning_rate`` in ``decay_steps`` steps.

    (rate - end) x (1 - step / ``decay_steps``) ^ ``power`` + end; ``power`` is 1 by default. With
    ``cycle`` the decay restarts each time it has reached its end.
    """

    _kind = "polynomial"
    decay_steps: int
    end_learning_rate: float = 0.0
    power: float | None = None
    cycle: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cosine(LearningRateSchedule):
    """A cosine from ``learning_rate`` to ``alpha`` x ``learning_rate`` in ``decay_steps`` steps."""

    _kind = "cosine"
    decay_steps: int
    alpha: float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Optimizer(Message):
    """The rule by which a step changes a variable. Formulas: docs/job_file.md.

    With a ``learning_rate`` of 0 the variable keeps its values.
    """

    _beside_kind: ClassVar[tuple[str, ...]] = ("learning_rate", "schedule", "weight_decay")
    learning_rate: float
    schedule: LearningRateSchedule | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sgd(Optimizer):
    """w -= learning_rate g, where g includes ``weight_decay`` w."""

    _kind = "sgd"
    weight_decay: float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Momentum(Optimizer):
    """a = momentum a + g; w -= learning_rate a.

    With ``nesterov`` w -= learning_rate (g + momentum a).
    """

    _kind = "momentum"
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Adagrad(Optimizer):
    """a += g^2; w -= learning_rate g / (sqrt(a) + epsilon).

    Defaults: ``initial_accumulator_value`` 0.1, ``epsilon`` 1e-7.
    """

    _kind = "adagrad"
    initial_accumulator_value: float | None = None
    epsilon: float | None = None
    weight_decay: float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class RmsProp(Optimizer):
    """s = rho s + (1 - rho) g^2; w -= learning_rate g / sqrt(s + epsilon).

    Defaults: ``rho`` 0.9, ``epsilon`` 1e-7. With ``epsilon_form`` "epsilon_pytorch" epsilon is
    added to the root, and ``momentum`` accumulates gradients.
    """

    _kind = "rmsprop"
    rho: float | None = None
    momentum: float = 0.0
    epsilon: float | None = None
    centered: bool = False
    epsilon_form: EpsilonForm = "epsilon_tensorflow"
    weight_decay: float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Adam(Optimizer):
    """Adam. Defaults: ``beta1`` 0.9, ``beta2`` 0.999, ``epsilon`` 1e-8.

    With ``epsilon_form`` "epsilon_pytorch" epsilon is added to the root after its bias correction.
    """

    _kind = "adam"
    beta1: float | None = None
    beta2: float | None = None
    epsilon: float | None = None
    epsilon_form: EpsilonForm = "epsilon_tensorflow"
    weight_decay: float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdamW(Optimizer):
    """Adam with decoupled weight decay.

    Defaults: ``beta1`` 0.9, ``beta2`` 0.999, ``epsilon`` 1e-8, ``weight_decay`` 0.01.
    """

    _kind = "adamw"
    _beside_kind = ("learning_rate", "schedule")
    beta1: float | None = None
    beta2: float | None = None
    epsilon: float | None = None
    weight_decay: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ftrl(Optimizer):
    """Follow the regularized leader, for sparse linear models (McMahan et al. 2013).

    Default: ``initial_accumulator_value`` 0.1.
    """

    _kind = "ftrl"
    initial_accumulator_value: float | None = None
    l1: float = 0.0
    l2: float = 0.0
    l2_shrinkage: float = 0.0
    beta: float = 0.0
    weight_decay: float = 0.0


# The job


@dataclasses.dataclass(frozen=True, kw_only=True)
class Consistency(Message):
    """When pushes become a step: ``Synchronous`` or ``Asynchronous``."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Synchronous(Consistency):
    """A step is the mean (or sum) of N gradients, all computed on the values of that step.

    Attributes:
        replicas_to_aggregate: N, the gradients in a step. Default: M.
        total_num_replicas: M, the number of workers. Default: the cluster's. With M > N, M - N
            workers are backup replicas; with M < N, each worker contributes several times to a
            step.
        aggregation: "mean", weighted by examples, or "sum".
    """

    _kind = "synchronous"
    replicas_to_aggregate: int | None = None
    total_num_replicas: int | None = None
    aggregation: Literal["mean", "sum"] = "mean"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asynchronous(Consistency):
    """Each push is a step of its own, applied when it arrives.

    Attributes:
        staleness_bound: A worker begins a push only when the slowest live worker is at
            most this many pushes behind. Default: workers never wait for each other.
        pipeline_depth: Pushes that a worker may have in progress at a time. Default 1.
    """

    _kind = "asynchronous"
    staleness_bound: int | None = None
    pipeline_depth: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class GradientClipping(Message):
    """Limits of gradients: one of the two.

    Attributes:
        value: Each element is clamped to [-value, value].
        global_norm: A gradient whose norm over all variables exceeds this is scaled down
            to it.
    """

    value: float | None = None
    global_norm: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class LossScale(Message):
    """Dynamic loss scaling, for gradients computed in float16.

    Attributes:
        initial: The first scale, a power of two. Default 65536.
        growth_interval: Steps without an overflow after which the scale doubles. Default
            2000.
    """

    initial: float | None = None
    growth_interval: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compression(Message):
    """Encodings of a variable on the network.

    Attributes:
        push: Encoding of gradients: "exact", "float16", "bfloat16", "int8" or "top_k".
        top_k: Share of the elements that "top_k" sends. Default 0.01.
        pull: Encoding of values: "exact", "float16" or "bfloat16".
    """

    push: Encoding = "exact"
    top_k: float | None = None
    pull: Literal["exact", "float16", "bfloat16"] = "exact"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Partitioner(Message):
    """How a variable is partitioned by rows into slices, which may be on different ps."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FixedShards(Partitioner):
    """min(``shards``, rows) slices."""

    _kind = "fixed_shards"
    shards: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class MinSize(Partitioner):
    """One slice per ``min_slice_bytes`` bytes (default 262144), rounded up."""

    _kind = "min_size"
    min_slice_bytes: int | None = None
    max_shards: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class MaxSize(Partitioner):
    """As few slices as possible, of at most ``max_slice_bytes`` each."""

    _kind = "max_size"
    max_slice_bytes: int
    max_shards: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Timeouts(Message):
    """How long the job waits, in seconds, before it fails. Each is 300 by default.

    Attributes:
        start_seconds: For every ps and enough workers to join.
        step_seconds: For a step's contributions.
        recovery_seconds: For a lost task to come back.
        disk_seconds: For progress while a checkpoint is written or restored.
    """

    start_seconds: float | None = None
    step_seconds: float | None = None
    recovery_seconds: float | None = None
    disk_seconds: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class LostWorkers(Message):
    """What the job does when a worker is lost.

    Attributes:
        policy: "wait" for it, or "continue" without it. Default: synchronous jobs wait,
            asynchronous ones continue.
        min_replicas: With "continue", the job waits while fewer workers than this are
            alive. Default 1.
        max_workers: With "continue", the maximum number of workers, up to which others may join
            while the job runs. Default: the number of workers in the cluster.
    """

    policy: Literal["wait", "continue"] | None = None
    min_replicas: int | None = None
    max_workers: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checkpoints(Message):
    """When the state of the job is saved in the ``--checkpoint_dir`` of the ps.

    Attributes:
        every_steps: Interval in steps.
        every_seconds: Interval in seconds. Default: 60 without ``every_steps``, otherwise
            not by time.
        keep: Number of checkpoints that are kept. Default 5.
    """

    every_steps: int | None = None
    every_seconds: float | None = None
    keep: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Metric(Message):
    """The metric by which evaluations are compared.

    Attributes:
        name: "loss", "accuracy", or any other name used by the evaluator's function.
        goal: "minimize" or "maximize". Default: "maximize" for "accuracy",
            "top_k_accuracy" and "auc", otherwise "minimize".
    """

    name: str
    goal: Literal["minimize", "maximize"] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class KeepBest(Message):
    """Keeps the checkpoints with the best evaluations, in the folder ``best``.

    Attributes:
        metric: The metric to compare. Default: the loss.
        count: Number of best checkpoints to keep. Default 1.
    """

    metric: Metric | None = None
    count: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class EarlyStopping(Message):
    """Ends the job before its last step once evaluations no longer improve.

    Attributes:
        metric: The metric to compare. Default: the loss.
        patience: Number of consecutive evaluations without an improvement after which the job ends.
        min_delta: Smaller changes do not count as an improvement.
        at_fixed_steps: Synchronous jobs only: makes the job end at the same step in every run. At
            each multiple of ``Evaluation.every_steps``, training waits for the evaluation of the
            previous one.
    """

    metric: Metric | None = None
    patience: int
    min_delta: float = 0.0
    at_fixed_steps: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation(Message):
    """When evaluators evaluate checkpoints, and with what effect; see ``Cluster.evaluate``.

    Attributes:
        every_steps: The first checkpoint at or after each multiple is evaluated. Default: the
            newest checkpoint whenever the evaluator is ready for one.
        every_seconds: Minimum time between the starts of evaluations. Default: no limit.
        start_delay_seconds: Time from the start of training before which no evaluation begins.
        keep_best: Which checkpoints are kept as the best. Default: none.
        early_stopping: When the job ends before its last step. Default: never.
    """

    every_steps: int | None = None
    every_seconds: float | None = None
    start_delay_seconds: float | None = None
    keep_best: KeepBest | None = None
    early_stopping: EarlyStopping | None = None


class Variable:
    """A float32 tensor of the model, held by the cluster.

    Args:
        shape: Dimensions, outermost first; an int for a vector, () for a scalar.
        initializer: First values: an ``Initializer``, by default ``Zeros()``, or a float32
            array of this shape, which is copied.
        trainable: Whether steps change the variable, and pushes carry its gradient.
        optimizer: Optimizer of this variable. Default: the job's.
        moving_average: Share from 0 to 1. Instead of gradients, pushes carry the
            variable's value in their batches, and a step sets it to ``moving_average`` x
            itself + (1 - ``moving_average``) x the mean of those values, like the moving
            statistics of batch norm.
        compression: Encodings on the network. Default: none.
        partitioner: How the variable is partitioned. Default: the job's.

    Raises:
        TypeError: An argument has the wrong type, or an array is not float32.
        ValueError: An array has the wrong shape.
    """

    def __init__(
        self,
        shape: int | Sequence[int],
        initializer: Initializer | npt.ArrayLike | None = None,
        *,
        trainable: bool = True,
        optimizer: Optimizer | None = None,
        moving_average: float | None = None,
        compression: Compression | None = None,
        partitioner: Partitioner | None = None,
    ) -> None:
        sizes = (shape,) if isinstance(shape, numbers.Integral) else shape
        if not isinstance(sizes, (tuple, list)) or not all(_fits(size, int) for size in sizes):
            raise TypeError(f"shape: expected an int or several, got {shape!r}")
        options: tuple[tuple[str, object, type], ...] = (
            ("optimizer", optimizer, Optimizer),
            ("compression", compression, Compression),
            ("partitioner", partitioner, Partitioner),
        )
        for name, option, kind in options:
            if option is not None and not isinstance(option, kind):
                raise TypeError(f"{name}: expected {kind.__name__} or None, got {option!r}")
        self.shape: tuple[int, ...] = tuple(int(size) for size in sizes)
        if not all(0 <= size < 2**63 for size in self.shape):
            raise ValueError(f"shape: sizes are from 0 to 2**63 - 1, got {shape!r}")
        self.initializer: Initializer | None = Zeros() if initializer is None else None
        self.value: Float32Array | None = None
        if isinstance(initializer, Initializer):
            self.initializer = initializer
        elif initializer is not None:
            value = np.asarray(initializer)
            if value.dtype != np.float32:
                raise TypeError(
                    f"first values have dtype {value.dtype}; variables are float32: "
                    "convert them with .astype(numpy.float32)"
                )
            if value.shape != self.shape:
                raise ValueError(f"first values have shape {value.shape}, declared {self.shape}")
            # The caller may change its array before the values are sent.
            self.value = np.array(value, order="C")
            self.value.flags.writeable = False
        self.trainable = trainable
        self.optimizer = optimizer
        self.moving_average = moving_average
        self.compression = compression
        self.partitioner = partitioner

    @staticmethod
    def of(value: Variable | npt.ArrayLike) -> Variable:
        """``value`` itself, or a variable with these first values."""
        return value if isinstance(value, Variable) else Variable(np.shape(value), value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job(Message):
    """A job's declaration without its variables; see ``Cluster.declare``."""

    optimizers: tuple[Optimizer, ...]
    consistency: Consistency
    placement: Literal["round_robin", "greedy_by_bytes"] | None = None
    seed: int = 0
    total_steps: int
    timeouts: Timeouts | None = None
    clipping: GradientClipping | None = None
    partitioner: Partitioner | None = None
    examples: Literal["by_step", "by_ticket"] | None = None
    checkpoints: Checkpoints | None = None
    lost_workers: LostWorkers | None = None
    loss_scale: LossScale | None = None
    max_consecutive_not_finite: int | None = None
    evaluation: Evaluation | None = None


def variables_of(variables: Mapping[str, Variable | npt.ArrayLike]) -> dict[str, Variable]:
    """Converts the variables given to ``Cluster.declare``.

    Raises:
        TypeError, ValueError: An array cannot become a variable; the error names it.
    """
    declared: dict[str, Variable] = {}
    for name, value in variables.items():
        if not isinstance(name, str):
            raise TypeError(f"names of variables are str, got {name!r}")
        try:
            declared[name] = Variable.of(value)
        except (TypeError, ValueError) as error:
            raise type(error)(f'variable "{name}": {error}') from None
    return declared


class HasOptimizer(typing.Protocol):
    """A variable or a table, with an optimizer of its own or the job's."""

    optimizer: Optimizer | None


def optimizers_of(owners: Iterable[HasOptimizer], default: Optimizer) -> tuple[Optimizer, ...]:
    """The default optimizer and the owners' own ones, without repetition."""
    own = [owner.optimizer for owner in owners if owner.optimizer is not None]
    return tuple(dict.fromkeys([default, *own]))


def optimizers_named(
    message: str, owners: Mapping[str, HasOptimizer], optimizers: tuple[Optimizer, ...]
) -> str:
    """Says which variables or tables have the optimizers that ``message`` names by index.

    The cluster's errors call them "optimizers[1]", which a script never does. Empty if there are
    none.
    """
    told = []
    for index in sorted({int(i) for i in re.findall(r"optimizers\[(\d+)\]", message)}):
        if index >= len(optimizers):
            continue
        names = [
            json.dumps(name, ensure_ascii=False)
            for name, owner in owners.items()
            if (optimizers[0] if owner.optimizer is None else owner.optimizer) == optimizers[index]
        ]
        if len(names) > _MAX_NAMES:
            names[_MAX_NAMES:] = [f"{len(names) - _MAX_NAMES} more"]
        kind = type(optimizers[index]).__name__
        told.append(f"optimizers[{index}] is {kind} of {', '.join(names) or 'nothing'}")
    return "; ".join(told)


def declaration_text(variables: Mapping[str, Variable], job: Job) -> str:
    """The Declaration (proto/cluster.proto) of a job, as a textproto."""
    lines: list[str] = []
    for name, variable in variables.items():
        optimizer = 0 if variable.optimizer is None else job.optimizers.index(variable.optimizer)
        fields = [
            field_text("name", name),
            field_text("shape", variable.shape),
            "dtype: FLOAT32",
            "initializer { given {} }"
            if variable.initializer is None
            else field_text("initializer", variable.initializer),
            "" if variable.trainable else "trainable: false",
            f"optimizer: {optimizer}" if optimizer else "",
            field_text("partitioner", variable.partitioner),
            field_text("compression", variable.compression),
            ""
            if variable.moving_average is None
            else f"moving_average {{ {field_text('momentum', variable.moving_average)} }}",
        ]
        lines.append(f"variables {{ {' '.join(filter(None, fields))} }}")
    return "\n".join([*lines, job.text(), ""])


def facts_of(facts: Mapping[str, str | int]) -> dict[str, str]:
    """Facts for ``Cluster.agree`` as texts. Raises TypeError if they have other types."""
    texts = {}
    for name, value in facts.items():
        if not isinstance(name, str):
            raise TypeError(f"a fact's name must be a str, is {name!r}")
        if isinstance(value, bool) or not isinstance(value, (str, numbers.Integral)):
            raise TypeError(
                f"fact {name!r}: expected a str or an int, got {value!r}; "
                "write numbers with a fraction as a str, for example by repr()"
            )
        texts[name] = value if isinstance(value, str) else str(int(value))
    return texts


def facts_text(facts: Mapping[str, str]) -> str:
    """The same as a textproto, for the end of a declaration."""
    return "".join(
        f"agreed {{ {field_text('key', name)} {field_text('value', value)} }}\n"
        for name, value in facts.items()
    )
