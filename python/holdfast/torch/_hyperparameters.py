# SPDX-License-Identifier: Apache-2.0

"""Notices hyperparameters that the script changes, which the cluster would not see."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from holdfast import job
from holdfast.errors import Error
from holdfast.rates import rate_at

# Schedulers multiply rates step by step, and the declared formulas do not.
_ROUNDING = 1e-5


class Hyperparameters:
    """The parameter groups of torch's optimizer as they were declared.

    Args:
        optimizer: torch's optimizer.
        rules: The rule of each of its groups.
        scheduler: The scheduler of torch that the rules follow, if there is one.
        every: Number of steps between calls of its ``step``.
        names: Names of the model's parameters, by id.
        declared: Ids of the parameters that the cluster has.
    """

    def __init__(
        self,
        optimizer: Any,
        rules: Sequence[job.Optimizer],
        scheduler: Any,
        every: int,
        names: dict[int, str],
        declared: set[int],
    ) -> None:
        self._optimizer = optimizer
        self._rules = rules
        is_torch = scheduler is not None and not isinstance(scheduler, job.LearningRateSchedule)
        self._scheduler = scheduler if is_torch else None
        self._every = every
        self._names = names
        self._declared = declared
        self._groups = [dict(group) for group in optimizer.param_groups]
        self._parameters = [[id(p) for p in group["params"]] for group in optimizer.param_groups]
        self._begun = False
        # The scheduler's count, and the step of the values, when it last rose.
        self._count = 0
        self._rose_at: int | None = None

    def on_interrupt(self) -> None:
        """Called when a step was interrupted: the script may not have called the scheduler."""
        self._rose_at = None

    def check(self, step: int | None) -> None:
        """Checks the groups before a push.

        Args:
            step: Step of the values; None if it does not rise by one with each batch.

        Raises:
            Error: Something was changed; the error names it.
        """
        groups = self._optimizer.param_groups
        if len(groups) != len(self._groups):
            raise Error(
                f"the optimizer has {len(groups)} parameter groups, and had {len(self._groups)} "
                "when it was declared: groups are declared once"
            )
        for i, (group, declared) in enumerate(zip(groups, self._groups, strict=True)):
            self._check_parameters(i, group["params"])
            for name, value in declared.items():
                if name == "params" or (name == "lr" and self._scheduler is not None):
                    continue
                if group[name] is value or group[name] == value:
                    continue
                raise Error(
                    f"param_groups[{i}]['{name}'] was changed from {value} to {group[name]}, but "
                    "the cluster has the declared one: declare a learning rate that changes with "
                    "Optimizer(..., scheduler=), a scheduler of torch's or a schedule of Holdfast's"
                )
        if self._scheduler is not None:
            self._check_scheduler(step)

    def _check_parameters(self, i: int, parameters: Sequence[Any]) -> None:
        if [id(p) for p in parameters] != self._parameters[i]:
            raise Error(
                f"param_groups[{i}]['params'] was changed: the variables of a job are declared "
                "once; give torch's optimizer all parameters before making "
                "holdfast.torch.Optimizer"
            )
        for parameter in parameters:
            if (
                parameter.requires_grad
                and id(parameter) not in self._declared
                and parameter.numel() > 0
            ):
                name = self._names.get(id(parameter), "a parameter")
                raise Error(
                    f'"{name}" was frozen (requires_grad=False) when holdfast.torch.Optimizer was '
                    "made, so the cluster does not have it and it would not be trained: make it "
                    "trainable before that"
                )

    def _check_scheduler(self, step: int | None) -> None:
        assert self._scheduler is not None
        count = int(self._scheduler.last_epoch)
        for i, (group, rule) in enumerate(
            zip(self._optimizer.param_groups, self._rules, strict=True)
        ):
            rate = rate_at(rule.learning_rate, rule.schedule, count * self._every)
            tiny = 1e-9 * rule.learning_rate
            if not math.isclose(group["lr"], rate, rel_tol=_ROUNDING, abs_tol=tiny):
                raise Error(
                    f"param_groups[{i}]['lr'] is {group['lr']}, and {self._name()} gives {rate} "
                    f"after {count} of its steps: the cluster follows the scheduler alone. A rate "
                    "that the script or a second scheduler writes has no effect there: pass one "
                    "scheduler that gives the rates, or a schedule of Holdfast's"
                )
        begun, self._begun = self._begun, True
        if not begun and count != 0:
            raise Error(
                f"{self._name()}.step() was called before the first step(): the cluster's first "
                "step has the scheduler's first rate; call it after step(), or do not call it"
            )
        if not begun and (step == 0 or self._every == 1):
            # A process that joins within an epoch does not know when that began.
            self._rose_at = step
        if step is None or count == self._count:
            return
        rises = count - self._count
        if self._rose_at is not None and self._rose_at <= step:
            steps = step - self._rose_at
            if steps != rises * self._every:
                raise Error(
                    f"{self._name()}.step() was called {rises} times in {steps} steps, but the "
                    f"cluster follows it with scheduler_every={self._every}: make the optimizer "
                    "with the number of steps between its calls, such as those of an epoch, and "
                    "call it then (also after a step that GradScaler skips), or do not call it"
                )
        self._count, self._rose_at = count, step

    def _name(self) -> str:
        return type(self._scheduler).__name__
