# SPDX-License-Identifier: Apache-2.0

"""libholdfast.so (client/c_api/holdfast.h) through ctypes: prototypes, errors, waits."""

from __future__ import annotations

import ctypes
import logging
import os
import pathlib
import sys
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from holdfast import errors
from holdfast.job import Float32Array

_API_VERSION = 1
_LIBRARY = "libholdfast.so.1"

# Values of holdfast_kind.
OK = 0
INVALID = 1
TIMED_OUT = 3
ROLLED_BACK = 4
FENCED = 5
JOB_FAILED = 6
UNAVAILABLE = 7
REFUSED = 8
NOT_FOUND = 9
STOPPED = 12

# Values of holdfast_turn_state.
TURN_NEXT = 0
TURN_HANDED_OUT = 1
TURN_DONE = 2

CLIP_AS_DECLARED = -1.0
LOSS_UNKNOWN = -sys.float_info.max

# Python's signal handlers run after each slice of a wait.
SLICE_MS = 100
# Interval of messages that say what a long wait is for.
_TELL_AFTER_SECONDS = 10.0

_log = logging.getLogger("holdfast")


class Option(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("value", ctypes.c_char_p)]


class Place(ctypes.Structure):
    _fields_ = [
        ("job", ctypes.c_char_p),
        ("index", ctypes.c_uint32),
        ("replica", ctypes.c_uint32),
        ("num_replicas", ctypes.c_uint32),
        ("num_ps", ctypes.c_uint32),
        ("is_chief", ctypes.c_int32),
    ]


class Variable(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("rank", ctypes.c_size_t),
        ("elements", ctypes.c_size_t),
        ("trainable", ctypes.c_int32),
        ("moving_average", ctypes.c_int32),
        ("data", ctypes.c_void_p),
    ]


class Table(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("row_length", ctypes.c_size_t),
        ("max_rows_per_push", ctypes.c_size_t),
        ("reserved", ctypes.c_uint64 * 4),
    ]


class Rows(ctypes.Structure):
    _fields_ = [
        ("table", ctypes.c_size_t),
        ("ids", ctypes.c_void_p),
        ("count", ctypes.c_size_t),
    ]


class Turn(ctypes.Structure):
    _fields_ = [
        ("done", ctypes.c_int32),
        ("rolled_back", ctypes.c_int32),
        ("batch", ctypes.c_uint64),
        ("step", ctypes.c_uint64),
        ("seat", ctypes.c_uint32),
        ("values", ctypes.c_uint32),
        ("loss_scale", ctypes.c_float),
        ("reserved_float", ctypes.c_float),
        ("number", ctypes.c_uint64),
        ("reserved", ctypes.c_uint64 * 3),
    ]


class Outcome(ctypes.Structure):
    _fields_ = [
        ("verdict", ctypes.c_int32),
        ("reserved_word", ctypes.c_uint32),
        ("staleness", ctypes.c_uint64),
        ("accepted", ctypes.c_uint64),
        ("stale", ctypes.c_uint64),
        ("duplicate", ctypes.c_uint64),
        ("not_finite", ctypes.c_uint64),
        ("roll_backs", ctypes.c_uint64),
        ("reserved", ctypes.c_uint64 * 4),
    ]


class Evaluation(ctypes.Structure):
    _fields_ = [
        ("done", ctypes.c_int32),
        ("reserved_word", ctypes.c_uint32),
        ("generation", ctypes.c_uint64),
        ("step", ctypes.c_uint64),
        ("name", ctypes.c_char * 64),
        ("reserved", ctypes.c_uint64 * 4),
    ]


class Metric(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("value", ctypes.c_double)]


_HANDLE = ctypes.c_void_p
_OUT = ctypes.c_void_p  # by ctypes.byref, or an address
_TEXT = ctypes.c_char_p
_SIZE = ctypes.c_size_t

# Arguments of each function, without the error that comes last. All return a holdfast_kind.
_FUNCTIONS: dict[str, list[Any]] = {
    "connect": [_OUT, _SIZE, _OUT],
    "await_connected": [_HANDLE, ctypes.c_int64],
    "get_place": [_HANDLE, _OUT],
    "declare": [_HANDLE, _TEXT, _OUT, _SIZE, ctypes.c_int64],
    "await_variables": [_HANDLE, ctypes.c_int64],
    "agree": [_HANDLE, _OUT, _SIZE, ctypes.c_int64],
    "get_num_variables": [_HANDLE, _OUT],
    "get_variable": [_HANDLE, _SIZE, _OUT],
    "get_num_tables": [_HANDLE, _OUT],
    "get_table": [_HANDLE, _SIZE, _OUT],
    "get_declaration": [_HANDLE, _OUT],
    "get_status": [_HANDLE, ctypes.c_int64, _OUT],
    "save_checkpoint": [_HANDLE, ctypes.c_int64, _OUT],
    "next_evaluation": [_HANDLE, ctypes.c_int64, _OUT],
    "report_metrics": [_HANDLE, _OUT, ctypes.c_uint64, ctypes.c_uint64, _OUT, _SIZE,
                       ctypes.c_int64],
    "finish": [_HANDLE, ctypes.c_int64],
    "leave": [_HANDLE, _TEXT, ctypes.c_int64],
    "step_down": [_HANDLE, ctypes.c_int32, ctypes.c_int64],
    "loop_start": [_HANDLE, _OUT, _SIZE, _OUT],
    "loop_start_in": [_HANDLE, _OUT, _OUT, _SIZE, _OUT, _SIZE, _OUT],
    "loop_next": [_HANDLE, ctypes.c_int64, _OUT],
    "loop_current": [_HANDLE, _OUT, _OUT],
    "loop_restart": [_HANDLE],
    "loop_take_values": [_HANDLE, _OUT, _SIZE, _OUT],
    "loop_memory": [_HANDLE, _SIZE, _OUT],
    "loop_read": [_HANDLE, _OUT, _OUT, _SIZE],
    "loop_input": [_HANDLE, ctypes.c_int32],
    "loop_add": [_HANDLE, _SIZE, _OUT, _SIZE],
    "loop_push": [_HANDLE, _OUT, _OUT, _SIZE, ctypes.c_uint64, ctypes.c_double, ctypes.c_float],
    "loop_contribute": [_HANDLE, ctypes.c_uint64, ctypes.c_double, ctypes.c_float],
    "loop_read_rows": [_HANDLE, _OUT, _SIZE, _OUT, _OUT, ctypes.c_int64],
    "loop_want_rows": [_HANDLE, _OUT, _SIZE],
    "loop_add_rows": [_HANDLE, _OUT, _OUT, _SIZE],
    "loop_outcome": [_HANDLE, _OUT],
    "pull": [_HANDLE, ctypes.c_uint64, _OUT],
    "pull_rows": [_HANDLE, ctypes.c_uint64, _OUT, _SIZE, _OUT],
    "values_wait": [_HANDLE, ctypes.c_int64],
    "load_checkpoint": [_TEXT, _OUT],
    "values_get_step": [_HANDLE, _OUT],
    "values_get_count": [_HANDLE, _OUT],
    "values_get_variable": [_HANDLE, _SIZE, _OUT],
    "values_get_rows": [_HANDLE, _SIZE, _OUT, _SIZE],
    "values_get_num_tables": [_HANDLE, _OUT],
    "values_get_table": [_HANDLE, _SIZE, _OUT],
    "values_get_num_rows": [_HANDLE, _SIZE, _OUT],
    "values_read_table": [_HANDLE, _SIZE, _OUT, _OUT, _SIZE],
    "checksums": [_OUT, _OUT, _SIZE, _OUT],
    "batch_examples_shuffled": [
        ctypes.c_uint64, ctypes.c_int32, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64,
        ctypes.c_uint64, _OUT,
    ],
}  # fmt: skip


def _load() -> ctypes.CDLL:
    beside = pathlib.Path(__file__).parent / _LIBRARY
    path = os.environ.get("HOLDFAST_LIBRARY") or (str(beside) if beside.exists() else _LIBRARY)
    library = ctypes.CDLL(path)
    version = library.holdfast_api_version()
    if version != _API_VERSION:
        raise ImportError(f"{path} has version {version} of the C API, not {_API_VERSION}")
    for name, arguments in _FUNCTIONS.items():
        function = getattr(library, "holdfast_" + name)
        function.argtypes = [*arguments, _OUT]
        function.restype = ctypes.c_int32
    for name in ("error_kind", "error_exit_code"):
        function = getattr(library, "holdfast_" + name)
        function.argtypes = [_HANDLE]
        function.restype = ctypes.c_int32
    for name in ("error_message", "error_task"):
        function = getattr(library, "holdfast_" + name)
        function.argtypes = [_HANDLE]
        function.restype = ctypes.c_char_p
    for name in ("error_free", "text_free", "close", "loop_free", "values_free"):
        function = getattr(library, "holdfast_" + name)
        function.argtypes = [_HANDLE]
        function.restype = None
    library.holdfast_set_log.argtypes = [ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p]
    library.holdfast_set_log.restype = None
    library.holdfast_version.restype = ctypes.c_char_p
    return library


library = _load()


class RolledBackMeanwhile(errors.Error):
    """The result of a wait belongs to a state from which the job has been rolled back."""


def text_bytes(text: str) -> bytes:
    """Any text as the library takes it: UTF-8, up to a NUL.

    Surrogates, such as those in the name of a file that is not UTF-8, become escapes, because an
    error has to reach the others whatever its text contains.
    """
    return text.replace("\0", r"\x00").encode(errors="backslashreplace")


def path_bytes(path: str | bytes | os.PathLike[str] | os.PathLike[bytes]) -> bytes:
    """The name of a file, which may be any bytes, as the library takes it."""
    return os.fsencode(path)


def take_text(text: ctypes.c_void_p) -> str:
    """Converts a char* that the library has allocated, and frees it."""
    assert text.value is not None
    try:
        return ctypes.string_at(text.value).decode(errors="replace")
    finally:
        library.holdfast_text_free(text)


def _message_of(error: ctypes.c_void_p) -> str:
    return str(library.holdfast_error_message(error).decode(errors="replace"))


def exception(error: ctypes.c_void_p) -> Exception:
    """Converts an error into an exception, and frees it."""
    try:
        kind = library.holdfast_error_kind(error)
        message = _message_of(error)
        exit_code = library.holdfast_error_exit_code(error)
        task = library.holdfast_error_task(error).decode(errors="replace")
    finally:
        library.holdfast_error_free(error)
    classes: dict[int, type[errors.Error]] = {
        INVALID: errors.Refused,
        ROLLED_BACK: RolledBackMeanwhile,
        FENCED: errors.Fenced,
        JOB_FAILED: errors.JobFailed,
        STOPPED: errors.Stopped,
        UNAVAILABLE: errors.Unavailable,
        REFUSED: errors.Refused,
    }
    if kind == NOT_FOUND:
        return FileNotFoundError(message)
    return classes.get(kind, errors.Error)(message, exit_code=exit_code, task=task)


def call(function: Any, *arguments: Any) -> None:
    """Calls a function that does not wait.

    Raises:
        holdfast.Error: The function failed.
    """
    error = ctypes.c_void_p()
    if function(*arguments, ctypes.byref(error)) != OK:
        raise exception(error)


def wait(function: Any, *arguments: Any, patiently: bool = False) -> None:
    """Repeats a call whose timeout is ``SLICE_MS`` until it does not time out.

    Args:
        patiently: Long waits are normal, and are not logged.

    Raises:
        holdfast.Error: The function failed.
    """
    begin = told = 0.0
    while True:
        error = ctypes.c_void_p()
        kind = function(*arguments, ctypes.byref(error))
        if kind == OK:
            return
        if kind != TIMED_OUT:
            raise exception(error)
        now = time.monotonic()
        begin = begin or now
        if not patiently and now - max(begin, told) > _TELL_AFTER_SECONDS:
            told = now
            _log.warning("%s, for %.0f s", _message_of(error), now - begin)
        library.holdfast_error_free(error)


def checksums(pointers: Any, bytes: Any, count: int) -> Any:
    """A fast checksum of each of ``count`` pieces of memory, as an array of c_uint64.

    Args:
        pointers: Their addresses, an array of c_void_p.
        bytes: Their sizes, an array of c_size_t.
    """
    sums = (ctypes.c_uint64 * count)()
    call(library.holdfast_checksums, pointers, bytes, count, sums)
    return sums


def options(settings: Mapping[str, str | bytes | None]) -> Any:
    """An array of holdfast_option with the settings that are not None."""
    given = [(name, value) for name, value in settings.items() if value is not None]
    array = (Option * len(given))()
    for option, (name, value) in zip(array, given, strict=True):
        option.name = name.encode()
        option.value = value if isinstance(value, bytes) else text_bytes(value)
    return array


class Memory:
    """Native memory, freed when neither this object nor an array on it is left."""

    def __init__(self, handle: int, free: Callable[[int], None]) -> None:
        self.handle = handle
        # Objects that the native side uses, and that must live as long.
        self.lent: object = None
        # Not at exit, when arrays may still be in use.
        weakref.finalize(self, free, handle).atexit = False

    def array(self, address: int, shape: tuple[int, ...], *, writable: bool) -> Float32Array:
        """The floats at ``address``, without a copy."""
        if 0 in shape:
            return np.zeros(shape, np.float32)
        return np.asarray(_View(self, address, shape, writable))


class _View:
    """Exports native memory to NumPy, whose array keeps a reference to it."""

    def __init__(self, memory: Memory, address: int, shape: tuple[int, ...], writable: bool):
        self._memory = memory
        self.__array_interface__ = {
            "version": 3,
            "typestr": "<f4",
            "shape": shape,
            "data": (address, not writable),
        }


def shape_of(variable: Variable) -> tuple[int, ...]:
    return tuple(variable.shape[i] for i in range(variable.rank))


def values_of(memory: Memory, *, writable: bool) -> dict[str, Float32Array]:
    """The arrays of a holdfast_values."""
    count = ctypes.c_size_t()
    call(library.holdfast_values_get_count, memory.handle, ctypes.byref(count))
    values: dict[str, Float32Array] = {}
    for i in range(count.value):
        variable = Variable()
        call(library.holdfast_values_get_variable, memory.handle, i, ctypes.byref(variable))
        name = variable.name.decode()
        values[name] = memory.array(variable.data, shape_of(variable), writable=writable)
    return values


def step_of(memory: Memory) -> int:
    step = ctypes.c_uint64()
    call(library.holdfast_values_get_step, memory.handle, ctypes.byref(step))
    return step.value
