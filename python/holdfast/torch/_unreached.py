# SPDX-License-Identifier: Apache-2.0

"""Parameters without a gradient, which torch leaves alone and a ps gives a gradient of zeros."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast import job
from holdfast.errors import Error
from holdfast.torch._variables import Slot


class Unreached:
    """Refuses missing gradients where a gradient of zeros has another effect.

    With weight decay, zeros change the parameter. Momentum and RMSprop go on with what they have
    gathered, and Adam counts the step, both for what follows and for what has not begun yet.

    Args:
        slots: The variables.
        rules: The rule of each; None for statistics.
    """

    def __init__(self, slots: Sequence[Slot], rules: Sequence[job.Optimizer | None]) -> None:
        self._slots = slots
        self._rules = rules
        # Variables that had a gradient in some turn of this process, and that had none.
        self._had: set[int] = set()
        self._missed: set[int] = set()

    def check(self, reached: Sequence[bool]) -> None:
        """Checks the gradients of a turn.

        Args:
            reached: For each variable, whether it has a gradient.

        Raises:
            Error: Zeros in place of a gradient would differ; the error names the parameter.
        """
        for i, (has, rule) in enumerate(zip(reached, self._rules, strict=True)):
            if rule is None:
                continue
            if has and i in self._missed and isinstance(rule, (job.Adam, job.AdamW)):
                self._refuse(i, "has a gradient now, and had none in earlier steps", rule)
            if not has and (_decays(rule) or (i in self._had and _remembers(rule))):
                self._refuse(i, "has no gradient in this step", rule)
            (self._had if has else self._missed).add(i)

    def _refuse(self, i: int, what: str, rule: job.Optimizer) -> None:
        slot = self._slots[i]
        frozen = "" if slot.tensor.requires_grad else " (requires_grad is False)"
        raise Error(
            f'"{slot.key}" {what}{frozen}: torch skips a parameter without a gradient, and '
            f"{type(rule).__name__} on the cluster would make a step with zeros. Parameters that "
            "are not trained in every step: freeze them, or leave them out of torch's optimizer, "
            'before making this one; or pass missing_gradients="zeros", as DDP treats them'
        )


def _decays(rule: job.Optimizer) -> bool:
    if isinstance(rule, job.AdamW):
        return rule.weight_decay != 0
    return bool(getattr(rule, "weight_decay", 0))


def _remembers(rule: job.Optimizer) -> bool:
    """Whether a gradient of zeros after others changes the parameter or its slots."""
    return not isinstance(rule, (job.Sgd, job.Adagrad))
