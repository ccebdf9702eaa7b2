# SPDX-License-Identifier: Apache-2.0

"""What each worker keeps of a model to itself, as facts that all workers must share."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import torch

from holdfast.torch._prints import prints_of
from holdfast.torch._variables import Slot, plain_key, tensors_of

# More than this many tensors become one fact.
_MOST = 5_000


def facts_of(model: Any, slots: Sequence[Slot]) -> dict[str, str]:
    """By name, type, shape and digest of parameters and buffers that the cluster does not hold."""
    held = {id(slot.tensor) for slot in slots}
    local = [
        (key, tensor)
        for key, tensor in tensors_of(model)
        if id(tensor) not in held and tensor.numel() > 0 and tensor.device.type != "meta"
    ]
    prints = prints_of([tensor.detach().cpu() for _, tensor in local])
    facts = {}
    for (key, tensor), number in zip(local, prints, strict=True):
        kind = "frozen parameter" if isinstance(tensor, torch.nn.Parameter) else "buffer"
        shape = ",".join(map(str, tensor.shape))
        dtype = str(tensor.dtype).removeprefix("torch.")
        facts[f"{kind} {plain_key(key)}"] = f"{dtype}[{shape}] {number:016x}"
    if len(facts) > _MOST:
        whole = zlib.crc32("\n".join(f"{name}: {facts[name]}" for name in facts).encode())
        return {f"{len(facts)} frozen parameters and buffers": f"{whole:08x}"}
    return facts
