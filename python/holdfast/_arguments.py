# SPDX-License-Identifier: Apache-2.0

"""Checks numbers before they go to the library, where ctypes would wrap or cut them silently."""

from __future__ import annotations

import operator
from typing import Any

from holdfast import _native

# The limit of the protocol (ContributeRequest.examples).
MOST_EXAMPLES = 10**12


def integer(name: str, value: Any, *, least: int = 0, most: int = 2**64 - 1) -> int:
    """``value`` as an int.

    Raises:
        TypeError: It is not an integer; a float or bool is none.
        ValueError: It is out of range.
    """
    try:
        if isinstance(value, bool):
            raise TypeError
        result = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}; it must be an int") from None
    if not least <= result <= most:
        raise ValueError(f"{name} is {result}; it must be from {least} to {most}")
    return result


def number(name: str, value: Any) -> float:
    """``value`` as a float, which may be infinite or not a number.

    Raises:
        TypeError: It is not a number.
    """
    if type(value) is float:
        return value
    try:
        if isinstance(value, (str, bytes, bytearray, bool)):
            raise TypeError
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise TypeError(f"{name} is {value!r}; it must be a number") from None


def of_push(examples: Any, loss: Any, clip_factor: Any) -> tuple[int, float, float]:
    """The numbers of a push, as the library takes them.

    Raises:
        TypeError, ValueError: One of them cannot be used; the error names it.
    """
    if type(examples) is not int or not 0 <= examples <= MOST_EXAMPLES:
        examples = integer("examples", examples, most=MOST_EXAMPLES)
    if loss is None:
        loss = _native.LOSS_UNKNOWN
    elif type(loss) is not float:
        loss = number("loss", loss)
    if clip_factor is None:
        return examples, loss, _native.CLIP_AS_DECLARED
    factor = number("clip_factor", clip_factor)
    if not 0 <= factor <= 1:
        raise ValueError(f"clip_factor is {factor}; it must be from 0 to 1")
    return examples, loss, factor
