# SPDX-License-Identifier: Apache-2.0

"""Schedulers of ``torch.optim.lr_scheduler`` as schedules that a job declares.

The coordinator computes the rate of each step, so that every ps sees the same rate whatever failed
meanwhile. A scheduler is converted if one of the declared formulas yields its ``get_last_lr()`` at
every step of the job, except for rounding to float32; others are refused by name.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import operator
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from torch.optim import lr_scheduler

from holdfast import job
from holdfast.rates import rate_at

# The key under which schedulers keep a group's first learning rate.
FIRST_LR = "initial_lr"
# Maximum in one declaration; each takes 12 bytes of it.
_MAX_PIECES = 10_000

# The learning rate of the rule, and its schedule.
Rate = tuple[float, job.LearningRateSchedule]


def schedule_of(scheduler: Any, group: int, *, steps: int, every: int) -> Rate:
    """Returns what a rule needs to follow ``scheduler`` in parameter group ``group``.

    Args:
        scheduler: A scheduler that has made no steps.
        group: Index of the parameter group.
        steps: Steps in the job.
        every: Number of steps between calls of ``scheduler.step()``.
    """
    if every < 1:
        raise ValueError(
            f"steps between calls of scheduler.step(): expected 1 or more, not {every}"
        )
    if getattr(scheduler, "last_epoch", 0) != 0:
        raise ValueError(
            f"the {_name(scheduler)} has already made {scheduler.last_epoch} steps: create a new "
            "one; a job that resumes goes on with the rate of its step"
        )
    last = max(steps - 1, 0) // every
    rate, schedule = _convert(scheduler, group, last)
    if every == 1:
        return rate, schedule
    # Each step of the scheduler becomes a piece.
    rates = ((n, rate_at(rate, schedule, n)) for n in range(_changes_until(schedule, last) + 1))
    first = rate_at(rate, schedule, 0)
    changes = (next(group) for _, group in itertools.groupby(rates, key=operator.itemgetter(1)))
    return first, _pieces(scheduler, ((n * every, rate) for n, rate in changes if n > 0))


def _name(scheduler: object) -> str:
    return type(scheduler).__name__


def _convert(scheduler: Any, group: int, last: int) -> Rate:
    """The schedule in steps of the scheduler, of which the job uses those up to ``last``."""
    convert = _CONVERTERS.get(type(scheduler))
    if convert is None:
        raise TypeError(
            f"{_name(scheduler)} has no counterpart among the schedules of a job. Use one of "
            + ", ".join(kind.__name__ for kind in _CONVERTERS)
            + "; or pass one of Holdfast's, such as holdfast.Piecewise, as the scheduler"
        )
    return convert(scheduler, group, last)


def _refuse(scheduler: object, why: str, way_out: str) -> NoReturn:
    raise ValueError(
        f"{_name(scheduler)}: {why}, which no schedule of a job does: {way_out}, or pass one of "
        "Holdfast's schedules as the scheduler"
    )


def _changes_until(schedule: job.LearningRateSchedule, last: int) -> int:
    """A step from which on the rate does not change, or the last step."""
    warmup = schedule.warmup_steps or 0
    match schedule:
        case job.Piecewise():
            return min(last, warmup + schedule.pieces[-1].from_step)
        case job.Polynomial() | job.Cosine():
            return min(last, warmup + schedule.decay_steps)
        case job.Exponential():
            return last
    return min(last, warmup)


def _pieces(scheduler: object, rates: Iterable[tuple[int, float]]) -> job.LearningRateSchedule:
    pieces = tuple(
        job.Piece(from_step=step, learning_rate=rate)
        for step, rate in itertools.islice(rates, _MAX_PIECES + 1)
    )
    if len(pieces) > _MAX_PIECES:
        _refuse(
            scheduler,
            f"the rate changes more than {_MAX_PIECES} times, each time to a value of its own",
            "let it change less often",
        )
    return job.Piecewise(pieces=pieces) if pieces else job.LearningRateSchedule()


def _step_lr(scheduler: Any, group: int, last: int) -> Rate:
    base, size = scheduler.base_lrs[group], scheduler.step_size
    # Not a staircase, because its rounded gamma would be raised to a power.
    rates = ((i * size, base * scheduler.gamma**i) for i in range(1, last // size + 1))
    return base, _pieces(scheduler, rates)


def _multi_step_lr(scheduler: Any, group: int, last: int) -> Rate:
    base, passed, rates = scheduler.base_lrs[group], 0, []
    for milestone, times in sorted(scheduler.milestones.items()):
        passed += times
        rates.append((milestone, base * scheduler.gamma**passed))
    return base, _pieces(scheduler, rates)


def _constant_lr(scheduler: Any, group: int, last: int) -> Rate:
    base = scheduler.base_lrs[group]
    return base, _pieces(scheduler, [(0, base * scheduler.factor), (scheduler.total_iters, base)])


def _linear_lr(scheduler: Any, group: int, last: int) -> Rate:
    base, steps = scheduler.base_lrs[group], scheduler.total_iters
    start, end = base * scheduler.start_factor, base * scheduler.end_factor
    if scheduler.end_factor == 1:
        return base, job.LearningRateSchedule(warmup_steps=steps, warmup_start_rate=start)
    return start, job.Polynomial(decay_steps=steps, end_learning_rate=end)


def _exponential_lr(scheduler: Any, group: int, last: int) -> Rate:
    # gamma^u = (gamma^d)^(u/d). The decay rate is rounded to float32, and an exponent of u would
    # multiply the error; but the rate must not underflow.
    slope = abs(math.log(scheduler.gamma))
    steps = max(1, last if slope * last < 60 else int(60 / slope))
    return scheduler.base_lrs[group], job.Exponential(
        decay_steps=steps, decay_rate=scheduler.gamma**steps
    )


def _polynomial_lr(scheduler: Any, group: int, last: int) -> Rate:
    return scheduler.base_lrs[group], job.Polynomial(
        decay_steps=scheduler.total_iters, power=scheduler.power
    )


def _cosine_annealing_lr(scheduler: Any, group: int, last: int) -> Rate:
    base = scheduler.base_lrs[group]
    if last > scheduler.T_max:
        _refuse(
            scheduler,
            f"the rate rises again after T_max={scheduler.T_max} steps, and the job makes "
            f"{last + 1}",
            "use a T_max as long as the job",
        )
    if scheduler.eta_min > base:
        _refuse(scheduler, f"eta_min={scheduler.eta_min} is above lr={base}", "use a lower eta_min")
    alpha = scheduler.eta_min / base if base > 0 else 0.0
    return base, job.Cosine(decay_steps=scheduler.T_max, alpha=alpha)


def _one_cycle_lr(scheduler: Any, group: int, last: int) -> Rate:
    if scheduler.cycle_momentum:
        _refuse(scheduler, "cycle_momentum=True changes the momentum", "use cycle_momentum=False")
    phases = scheduler._schedule_phases
    if len(phases) != 2:
        _refuse(scheduler, "three_phase=True has two falling phases", "use three_phase=False")
    if scheduler._anneal_func_type != "linear":
        _refuse(
            scheduler,
            'anneal_strategy="cos" rises along a cosine',
            'use anneal_strategy="linear", or SequentialLR with LinearLR and CosineAnnealingLR',
        )
    top = phases[0]["end_step"]
    if not float(top).is_integer() or top < 1:
        _refuse(
            scheduler,
            f"the highest rate falls between steps, at {top:g}",
            "choose pct_start so that pct_start x total_steps is a whole number above 1",
        )
    rates = scheduler.optimizer.param_groups[group]
    return rates["max_lr"], job.Polynomial(
        decay_steps=scheduler.total_steps - 1 - int(top),
        end_learning_rate=rates["min_lr"],
        warmup_steps=int(top),
        warmup_start_rate=rates[FIRST_LR],
    )


def _sequential_lr(scheduler: Any, group: int, last: int) -> Rate:
    schedulers, milestones = scheduler._schedulers, scheduler._milestones
    first = schedulers[0]
    if (
        len(schedulers) != 2
        or type(first) is not lr_scheduler.LinearLR
        or first.end_factor != 1
        or first.total_iters != milestones[0]
    ):
        _refuse(
            scheduler,
            "the sequence is not a linear warm-up and one more scheduler",
            "use [LinearLR(..., end_factor=1, total_iters=w), another], milestones=[w]",
        )
    rate, warmup = _linear_lr(first, group, last)
    after, schedule = _convert(schedulers[1], group, max(last - milestones[0], 0))
    if schedule.warmup_steps or after != rate:
        _refuse(
            scheduler,
            f"{_name(schedulers[1])} does not begin with the rate that the warm-up ends with",
            "use one that begins with the optimizer's lr",
        )
    return rate, dataclasses.replace(
        schedule,
        warmup_steps=warmup.warmup_steps,
        warmup_start_rate=warmup.warmup_start_rate,
    )


# By the exact class: a subclass may compute other rates.
_CONVERTERS: dict[type, Callable[[Any, int, int], Rate]] = {
    lr_scheduler.StepLR: _step_lr,
    lr_scheduler.MultiStepLR: _multi_step_lr,
    lr_scheduler.ConstantLR: _constant_lr,
    lr_scheduler.LinearLR: _linear_lr,
    lr_scheduler.ExponentialLR: _exponential_lr,
    lr_scheduler.PolynomialLR: _polynomial_lr,
    lr_scheduler.CosineAnnealingLR: _cosine_annealing_lr,
    lr_scheduler.OneCycleLR: _one_cycle_lr,
    lr_scheduler.SequentialLR: _sequential_lr,
}
