# SPDX-License-Identifier: Apache-2.0

"""The learning rate of a rule at each step."""

from __future__ import annotations

import math

from holdfast import job


def rate_at(learning_rate: float, schedule: job.LearningRateSchedule | None, step: int) -> float:
    """The rate at a step, by the formulas of LearningRateSchedule in proto/training.proto."""
    if schedule is None:
        return learning_rate
    warmup, start = schedule.warmup_steps or 0, schedule.warmup_start_rate or 0.0
    if step < warmup:
        return start + (learning_rate - start) * step / warmup
    u = step - warmup
    match schedule:
        case job.Piecewise():
            begun = [p.learning_rate for p in schedule.pieces if p.from_step <= u]
            return begun[-1] if begun else learning_rate
        case job.Exponential():
            if learning_rate == 0:
                return 0.0  # also where the power is infinite
            d = schedule.decay_steps
            exponent = float(u // d) if schedule.staircase else u / d
            return learning_rate * math.pow(schedule.decay_rate, exponent)
        case job.Polynomial():
            d, end = schedule.decay_steps, schedule.end_learning_rate
            power = 1.0 if schedule.power is None else schedule.power
            if schedule.cycle:
                d *= max(1, (u + d - 1) // d)
            return (learning_rate - end) * math.pow((d - min(u, d)) / d, power) + end
        case job.Cosine():
            share = min(u, schedule.decay_steps) / schedule.decay_steps
            cosine = (1 - schedule.alpha) * (1 + math.cos(math.pi * share)) / 2
            return learning_rate * (cosine + schedule.alpha)
    return learning_rate
