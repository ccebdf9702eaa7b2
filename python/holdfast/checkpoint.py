# SPDX-License-Identifier: Apache-2.0

"""Reads checkpoints, without a cluster."""

from __future__ import annotations

import ctypes
import dataclasses
import os
import pathlib

from holdfast import _native
from holdfast._native import library
from holdfast.job import Float32Array


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """The variables of a checkpoint.

    Attributes:
        step: Global step of the checkpoint; in asynchronous jobs, the number of pushes it includes.
        values: float32 arrays by name, which the caller may change.
    """

    step: int
    values: dict[str, Float32Array]


def load_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Reads a checkpoint, without a cluster.

    Args:
        path: The folder of a checkpoint, or a job's ``--checkpoint_dir``, whose newest
            durable checkpoint is read.

    Raises:
        FileNotFoundError: There is no checkpoint.
        Error: The checkpoint is damaged.
    """
    handle = ctypes.c_void_p()
    name = os.fsencode(pathlib.Path(path))
    _native.call(library.holdfast_load_checkpoint, name, ctypes.byref(handle))
    assert handle.value is not None
    memory = _native.Memory(handle.value, library.holdfast_values_free)
    return Checkpoint(_native.step_of(memory), _native.values_of(memory, writable=True))
