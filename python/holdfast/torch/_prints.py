# SPDX-License-Identifier: Apache-2.0

"""Fingerprints of tensors, by which a script's changes to them are noticed.

A tensor's version counter does not tell: ``tensor.data``, ``GradScaler.unscale_`` and NumPy write
to its memory without raising it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, TypeAlias

import torch

from holdfast import _native

# A 64-bit number, or a tensor that holds it on a GPU.
Print: TypeAlias = Any


def prints_of(tensors: Sequence[Any]) -> list[Print]:
    """The fingerprint of each tensor's bytes.

    Those in host memory are XXH3 of the bytes. Those on a GPU are sums, and stay there, so that
    nothing waits for the GPU.
    """
    prints: list[Print] = [None] * len(tensors)
    # Keeps copies alive until they are read.
    host = []
    for i, tensor in enumerate(tensors):
        tensor = tensor.detach()
        if tensor.device.type == "cpu":
            host.append((i, tensor.contiguous()))
        else:
            prints[i] = _sum_of(tensor)
    count = len(host)
    pointers = (ctypes.c_void_p * count)(*[tensor.data_ptr() for _, tensor in host])
    sizes = (ctypes.c_size_t * count)(*[tensor.nbytes for _, tensor in host])
    for (i, _), number in zip(host, _native.checksums(pointers, sizes, count), strict=True):
        prints[i] = number
    return prints


def changed(before: Sequence[Print], after: Sequence[Print]) -> list[int]:
    """The indices at which two lists of fingerprints differ; waits for GPUs."""
    different = []
    on_gpu: list[Any] = []
    for i, (one, other) in enumerate(zip(before, after, strict=True)):
        if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
            on_gpu.append((i, one, other))
        elif isinstance(one, torch.Tensor) != isinstance(other, torch.Tensor) or one != other:
            different.append(i)
    if on_gpu:
        device = on_gpu[0][1].device
        ones, others = (torch.stack([pair[side].to(device) for pair in on_gpu]) for side in (1, 2))
        same = (ones == others).tolist()
        different += [i for (i, _, _), equal in zip(on_gpu, same, strict=True) if not equal]
    return sorted(different)


# By the size of an element: integers of that size.
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _sum_of(tensor: Any) -> Any:
    integers = tensor.contiguous().view(_INTEGERS[tensor.element_size()])
    return integers.sum(dtype=torch.int64)
