# SPDX-License-Identifier: Apache-2.0

"""The rules of ps_server/optimizer/optimizer.h in NumPy, in any precision.

In float64 they are compared with torch.optim, and in float32 with what a ps makes of the same
gradients, bit for bit: every operation stands in the order of the C++, and IEEE 754 rounds
each one the same way in both.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

import holdfast
from holdfast.rates import rate_at


def as_declared(rule: holdfast.Optimizer) -> holdfast.Optimizer:
    """The rule with each number rounded to float32, as a declaration holds it."""

    def rounded(value):
        if isinstance(value, float):
            return float(np.float32(value))
        if dataclasses.is_dataclass(value):
            return as_declared(value)
        if isinstance(value, tuple):
            return tuple(map(rounded, value))
        return value

    return dataclasses.replace(
        rule, **{f.name: rounded(getattr(rule, f.name)) for f in dataclasses.fields(rule)}
    )


def _or(value, default):
    return default if value is None else value


class Trained:
    """A variable and the slots of its rule."""

    def __init__(self, rule: holdfast.Optimizer, first):
        self.rule = as_declared(rule) if first.dtype == np.float32 else rule
        self.value = first.copy()
        self._number = first.dtype.type
        self._slots = [np.zeros_like(first) for _ in range(3)]
        self._steps = 0
        if isinstance(rule, holdfast.Adagrad):
            self._slots[0] += self._number(_or(rule.initial_accumulator_value, 0.1))

    def step(self, g) -> None:
        rate = self._number(rate_at(self.rule.learning_rate, self.rule.schedule, self._steps))
        self._steps += 1
        w = self.value
        kept = w
        if not isinstance(self.rule, holdfast.AdamW) and self.rule.weight_decay:
            g = g + self._number(self.rule.weight_decay) * w
        if isinstance(self.rule, holdfast.AdamW):
            decay = float(rate) * float(self._number(_or(self.rule.weight_decay, 0.01)))
            kept = self._number(1 - decay) * w
        update = getattr(self, "_" + type(self.rule).__name__.lower())
        self.value = kept - update(g, rate)

    def _sgd(self, g, rate):
        return rate * g

    def _momentum(self, g, rate):
        a, m = self._slots[0], self._number(self.rule.momentum)
        a[:] = m * a + g
        return rate * g + rate * m * a if self.rule.nesterov else rate * a

    def _adagrad(self, g, rate):
        a = self._slots[0]
        a += g * g
        return rate * g / (np.sqrt(a) + self._number(_or(self.rule.epsilon, 1e-7)))

    def _rmsprop(self, g, rate):
        rule, one = self.rule, self._number(1)
        s, b, a = self._slots
        taken = one - self._number(_or(rule.rho, 0.9))
        epsilon = self._number(_or(rule.epsilon, 1e-7))
        momentum = self._number(rule.momentum)
        s += taken * (g * g - s)
        d = s
        if rule.centered:
            b += taken * (g - b)
            d = np.maximum(d - b * b, self._number(0))
        torch_form = rule.epsilon_form == "epsilon_pytorch"
        root = np.sqrt(d) + epsilon if torch_form else np.sqrt(d + epsilon)
        if momentum == 0:
            return rate * g / root
        if torch_form:
            a[:] = momentum * a + g / root
            return rate * a
        a[:] = momentum * a + rate * g / root
        return a

    def _adam(self, g, rate):
        m, root, c1, epsilon = self._moments(g)
        v = self._slots[1]
        if self.rule.epsilon_form == "epsilon_pytorch":
            return rate / c1 * m / (np.sqrt(v) * (self._number(1) / root) + epsilon)
        return rate * root / c1 * m / (np.sqrt(v) + epsilon)

    def _adamw(self, g, rate):
        m, root, c1, epsilon = self._moments(g)
        v = self._slots[1]
        return rate / c1 * m / (np.sqrt(v) * (self._number(1) / root) + epsilon)

    def _moments(self, g):
        """m', and of the step sqrt(c2), c1 and epsilon."""
        m, v, _ = self._slots
        beta1, beta2 = _or(self.rule.beta1, 0.9), _or(self.rule.beta2, 0.999)
        m += (self._number(1) - self._number(beta1)) * (g - m)
        v += (self._number(1) - self._number(beta2)) * (g * g - v)
        c1, c2 = (self._number(self._bias_correction(beta)) for beta in (beta1, beta2))
        return m, np.sqrt(c2), c1, self._number(_or(self.rule.epsilon, 1e-8))

    def _bias_correction(self, beta: float) -> float:
        # With beta as declared, as in ps_server/coordinator/schedule.cc.
        beta = float(self._number(beta))
        return -math.expm1(self._steps * math.log(beta)) if beta else 1.0
