# SPDX-License-Identifier: Apache-2.0

"""How a process leaves its clusters: at exit, by signals and exceptions, and after fork()."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
import types
import weakref
from typing import TYPE_CHECKING

from holdfast import _native
from holdfast._native import SLICE_MS, library
from holdfast.errors import Error

if TYPE_CHECKING:
    from holdfast.cluster import Cluster

_EXIT_RESTART = 138

open_clusters: weakref.WeakSet[Cluster] = weakref.WeakSet()


def leave(handle: int, reason: str, timeout_ms: int) -> None:
    """Leaves the cluster, and closes the handle.

    If the cluster cannot be reached in time, it notices the loss when the lease runs out.
    """
    deadline = time.monotonic() + timeout_ms / 1000
    error = ctypes.c_void_p()
    try:
        while True:
            kind = library.holdfast_leave(handle, reason.encode(), SLICE_MS, ctypes.byref(error))
            library.holdfast_error_free(error)
            if kind != _native.TIMED_OUT or time.monotonic() > deadline:
                break
    finally:
        library.holdfast_close(handle)


def _leave_all(value: BaseException | None = None) -> None:
    for cluster in list(open_clusters):
        cluster._end_with(value)


def _forget_all() -> None:
    """Runs in the child after fork(), where the library's threads do not exist."""
    for cluster in list(open_clusters):
        cluster._unusable = (
            f"{cluster.task} is process {os.getppid()}; process {os.getpid()} was made from it by "
            "fork() and cannot use its cluster: use it in the process that connected"
        )
        cluster._finalizer.detach()
    open_clusters.clear()
    # A process of a pool must end at once.
    if signal.getsignal(signal.SIGTERM) is _stop:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _stop(number: int, frame: types.FrameType | None) -> None:
    if open_clusters:
        raise SystemExit(_EXIT_RESTART)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)


_prepared = False


def end_as_daemons_do() -> None:
    """Installs the hooks for exit codes, SIGTERM, fork() and exit, once per process."""
    global _prepared
    if _prepared:
        return
    _prepared = True
    before = sys.excepthook

    def hook(
        kind: type[BaseException], value: BaseException, traceback: types.TracebackType | None
    ) -> None:
        if isinstance(value, Error) and value.exit_code == 0:
            # Not an error, but the end of the job: no traceback.
            print(f"holdfast: {value}", file=sys.stderr, flush=True)
        else:
            before(kind, value, traceback)
        _leave_all(value)
        if isinstance(value, Error):
            # The interpreter uses this as its exit code, and still cleans up.
            raise SystemExit(value.exit_code)

    sys.excepthook = hook
    atexit.register(_leave_all)
    os.register_at_fork(after_in_child=_forget_all)
    if threading.current_thread() is threading.main_thread():
        with contextlib.suppress(ValueError):
            if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
                signal.signal(signal.SIGTERM, _stop)
