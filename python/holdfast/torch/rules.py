# SPDX-License-Identifier: Apache-2.0

"""Optimizers of ``torch.optim`` as rules of the cluster.

The optimizer's state is on the ps, so the ps receive only a declaration. Options that no rule
covers are refused by name: a job never trains by another formula than its script says.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import numbers
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from holdfast import job
from holdfast.torch.schedules import FIRST_LR, schedule_of

Group = Mapping[str, Any]


def rules_of(
    optimizer: Any,
    *,
    steps: int,
    scheduler: Any = None,
    scheduler_every: int = 1,
) -> list[job.Optimizer]:
    """The rule of each of the optimizer's parameter groups.

    Args:
        optimizer: A ``torch.optim.SGD``, ``Adam``, ``AdamW``, ``Adagrad`` or ``RMSprop`` that
            has made no steps.
        steps: Steps in the job.
        scheduler: A scheduler of ``torch.optim.lr_scheduler`` for this optimizer, or a schedule of
            Holdfast's, which then applies to every group.
        scheduler_every: Number of steps between calls of ``scheduler.step()``: 1, or the steps of
            an epoch.

    Raises:
        TypeError: There is no rule for the optimizer's class, or no schedule for the scheduler's
            class.
        ValueError: No rule supports one of its options; the error names it.
    """
    convert = _RULES.get(type(optimizer))
    if convert is None:
        raise TypeError(
            f"{_name(optimizer)} has no counterpart on the cluster. Use one of torch.optim's "
            + ", ".join(kind.__name__ for kind in _RULES)
        )
    for steps_made in _steps_made(optimizer):
        if steps_made:
            raise ValueError(
                f"the {_name(optimizer)} has already made steps. The optimizer's state is kept by "
                "the cluster: create a new optimizer; a job resumes from its own checkpoint"
            )
    return [
        dataclasses.replace(
            convert(_Options(optimizer, index)),
            **_rate_of(optimizer, index, scheduler, steps, scheduler_every),
        )
        for index in range(len(optimizer.param_groups))
    ]


def _rate_of(optimizer: Any, index: int, scheduler: Any, steps: int, every: int) -> dict[str, Any]:
    """``learning_rate`` and ``schedule`` of a group."""
    group = optimizer.param_groups[index]
    if scheduler is None or isinstance(scheduler, job.LearningRateSchedule):
        if FIRST_LR in group:
            raise ValueError(
                f"a scheduler was created for this {_name(optimizer)}: pass it as the scheduler, "
                "so that the cluster follows its schedule"
            )
        return {"schedule": scheduler}
    if getattr(scheduler, "optimizer", None) is not optimizer:
        raise ValueError(f"the {_name(scheduler)} belongs to another optimizer")
    rate, schedule = schedule_of(scheduler, index, steps=steps, every=every)
    return {"learning_rate": rate, "schedule": schedule}


def _name(thing: object) -> str:
    return type(thing).__name__


def _steps_made(optimizer: Any) -> Iterator[bool]:
    for state in optimizer.state.values():
        yield state.get("momentum_buffer") is not None or float(state.get("step", 0)) > 0


# Options that choose an implementation of the same formula.
_IMPLEMENTATIONS = frozenset({"foreach", "fused", "capturable"})

_WAYS_OUT = {
    "amsgrad": "use amsgrad=False",
    "dampening": "use dampening=0; lr x (1 - dampening) then makes the same steps but the first",
    "differentiable": "use differentiable=False: gradients do not pass through the cluster",
    "lr_decay": "use lr_decay=0 with a scheduler",
    "maximize": "use maximize=False, and negate the loss",
}


class _Options:
    """Options of a parameter group, each of which must be used or neutral."""

    def __init__(self, optimizer: Any, index: int) -> None:
        self._group: Group = optimizer.param_groups[index]
        self._what = f"{_name(optimizer)}, parameter group {index}"
        # Other keys of a group belong to the script or a scheduler.
        self._left = set(optimizer.defaults) - _IMPLEMENTATIONS

    def number(self, name: str) -> float:
        return self._number(name, self._group[name])

    def pair(self, name: str) -> tuple[float, float]:
        first, second = self._group[name]
        return self._number(name, first), self._number(name, second)

    def flag(self, name: str) -> bool:
        self._left.discard(name)
        return bool(self._group.get(name))

    def done(self) -> None:
        """Refuses options that were not used and are not neutral."""
        for name in sorted(self._left):
            if self._group.get(name):
                raise ValueError(
                    f"{self._what}: {name}={self._group[name]!r} has no counterpart on the "
                    f"cluster: {_WAYS_OUT.get(name, f'leave {name} at its default')}"
                )

    def _number(self, name: str, value: object) -> float:
        self._left.discard(name)
        if isinstance(value, torch.Tensor):
            raise ValueError(
                f"{self._what}: {name} is a tensor, whose changes the cluster would not see: use "
                f"a number, such as {name}=float({name})"
            )
        if not isinstance(value, numbers.Real) or not math.isfinite(value):
            raise ValueError(f"{self._what}: {name} is {value!r}, not a number")
        return float(value)


def _sgd(options: _Options) -> job.Optimizer:
    rate, decay = options.number("lr"), options.number("weight_decay")
    momentum, nesterov = options.number("momentum"), options.flag("nesterov")
    if momentum == 0:
        options.number("dampening")  # belongs to momentum, which is not used
    options.done()
    if momentum == 0:
        return job.Sgd(learning_rate=rate, weight_decay=decay)
    return job.Momentum(
        learning_rate=rate, momentum=momentum, nesterov=nesterov, weight_decay=decay
    )


def _adam(options: _Options, *, decoupled: bool = False) -> job.Optimizer:
    rate, decay = options.number("lr"), options.number("weight_decay")
    (beta1, beta2), epsilon = options.pair("betas"), options.number("eps")
    decoupled = options.flag("decoupled_weight_decay") or decoupled
    options.done()
    if decoupled:
        return job.AdamW(
            learning_rate=rate, beta1=beta1, beta2=beta2, epsilon=epsilon, weight_decay=decay
        )
    return job.Adam(
        learning_rate=rate,
        beta1=beta1,
        beta2=beta2,
        epsilon=epsilon,
        epsilon_form="epsilon_pytorch",
        weight_decay=decay,
    )


def _adagrad(options: _Options) -> job.Optimizer:
    rule = job.Adagrad(
        learning_rate=options.number("lr"),
        initial_accumulator_value=options.number("initial_accumulator_value"),
        epsilon=options.number("eps"),
        weight_decay=options.number("weight_decay"),
    )
    options.done()
    return rule


def _rmsprop(options: _Options) -> job.Optimizer:
    rule = job.RmsProp(
        learning_rate=options.number("lr"),
        rho=options.number("alpha"),
        momentum=options.number("momentum"),
        epsilon=options.number("eps"),
        centered=options.flag("centered"),
        epsilon_form="epsilon_pytorch",
        weight_decay=options.number("weight_decay"),
    )
    options.done()
    return rule


# By the exact class: a subclass may make a different step.
_RULES: dict[type, Callable[[_Options], job.Optimizer]] = {
    torch.optim.SGD: _sgd,
    torch.optim.Adam: _adam,
    torch.optim.AdamW: functools.partial(_adam, decoupled=True),
    torch.optim.Adagrad: _adagrad,
    torch.optim.RMSprop: _rmsprop,
}
