# SPDX-License-Identifier: Apache-2.0

"""How a process leaves its clusters: at exit, by signals and exceptions, and after fork().

A script ends with the first exception that it does not catch, and the job with it. At a prompt,
such as that of Jupyter, IPython or ``python -i``, an exception ends the job only if it left a loop
over batches; after all others the user goes on.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
import traceback
import types
import weakref
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from holdfast import _native
from holdfast._native import SLICE_MS, library
from holdfast.errors import Error, Refused

if TYPE_CHECKING:
    from holdfast.cluster import Cluster

_EXIT_RESTART = 138

open_clusters: weakref.WeakSet[Cluster] = weakref.WeakSet()

# What the interpreter ends with: an exception that nobody has caught, or the status of sys.exit().
# A SystemExit that was raised in another way is not seen, and counts as the end of the script.
how_it_ends: BaseException = SystemExit(0)

# Whether an exception that nobody catches is followed by a prompt, as of the last connect().
at_prompt = False

# The shell of IPython or Jupyter whose cells are watched.
_shell: Any = None


def leave(
    handle: int, reason: str, timeout_ms: int, *, early: Literal["", "ended", "open"] = ""
) -> None:
    """Leaves the cluster, and closes the handle.

    If the cluster cannot be reached in time, it notices the loss when the lease runs out.

    Args:
        reason: Why the job cannot go on; empty if it can.
        early: Whether the worker leaves of its own accord and without a reason, although the job
            may not be done: "ended" if the program ends, "open" if it goes on without the cluster.
    """
    deadline = time.monotonic() + timeout_ms / 1000
    error = ctypes.c_void_p()
    told = _native.text_bytes(reason)
    try:
        while True:
            if early:
                kind = library.holdfast_step_down(
                    handle, early == "ended", SLICE_MS, ctypes.byref(error)
                )
            else:
                kind = library.holdfast_leave(handle, told, SLICE_MS, ctypes.byref(error))
            library.holdfast_error_free(error)
            if kind != _native.TIMED_OUT or time.monotonic() > deadline:
                break
    finally:
        library.holdfast_close(handle)


def _leave_all() -> None:
    for cluster in list(open_clusters):
        cluster._end_with(how_it_ends)


def leave_place(place: tuple[str, str]) -> None:
    """Leaves with what this process has connected to the place before, which frees it at once."""
    for cluster in list(open_clusters):
        if cluster._place == place:
            cluster._step_down()
            cluster._unusable = (
                f"this process connected as {cluster.task} again, which closed this cluster: use "
                "the one that connect() returned last"
            )


def hands_out(cluster: Cluster) -> None:
    """To be called by a loop over batches each time before it loads and yields one.

    Notes the frames in which the loop's body runs, for ``ends_job``.
    """
    if at_prompt:
        frames = cluster._loop_frames
        frames.clear()
        # The generator that calls this, and all that wait for it.
        frame: types.FrameType | None = sys._getframe(1)
        while frame is not None:
            frames.append(frame)
            frame = frame.f_back


def loop_ended(cluster: Cluster) -> None:
    """To be called by a loop over batches when the job is done: it can no longer be left."""
    cluster._loop_frames.clear()


def ends_job(cluster: Cluster, error: BaseException) -> bool:
    """Whether an exception that nobody has caught ends the job for all workers."""
    if isinstance(error, Refused):
        # A worker that was refused because it belongs to another job, or differs from the others,
        # must not end this one; what else is refused later is an argument.
        ends = cluster._variables is not None and not error._differs
    else:
        # The job already knows, or goes on without this worker.
        ends = not isinstance(error, (Error, KeyboardInterrupt, SystemExit, GeneratorExit))
    if not ends:
        return False
    return not at_prompt or _left_loop(cluster, error)


def _left_loop(cluster: Cluster, error: BaseException) -> bool:
    """Whether the error, or one that it followed, came through a frame with a loop over batches."""
    following: BaseException | None = error
    seen: set[int] = set()
    while following is not None and id(following) not in seen:
        seen.add(id(following))
        for frame, _ in traceback.walk_tb(following.__traceback__):
            if frame in cluster._loop_frames:
                return True
        following = following.__cause__ or following.__context__
    return False


def _before_prompt(*errors: BaseException | None) -> None:
    """Runs after each error at a prompt, and after each cell."""
    for cluster in list(open_clusters):
        for error in errors:
            if error is None or not ends_job(cluster, error):
                continue
            cluster._end_with(error)
            cluster._unusable = (
                f"{type(error).__name__} has left the loop over batches, which ended the job for "
                "all workers"
            )
            print(f"holdfast: {cluster._unusable}: {error}", file=sys.stderr, flush=True)
            break
        # They keep the variables of functions alive.
        cluster._loop_frames.clear()


def _after_cell(result: Any) -> None:
    # An error of a script that a cell runs (%run) is not one of the cell, and only shown.
    _before_prompt(result.error_in_exec, getattr(sys, "last_value", None))


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
    global how_it_ends
    if open_clusters:
        how_it_ends = SystemExit(_EXIT_RESTART)
        raise how_it_ends
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)


def _find_prompt() -> None:
    global at_prompt, _shell
    ipython = sys.modules.get("IPython")
    if _shell is None and ipython is not None:
        _shell = ipython.get_ipython()
        if _shell is not None:
            # IPython does not call sys.excepthook.
            _shell.events.register("post_run_cell", _after_cell)
    # A script that has called code.interact() may have ps1, too, but has a name.
    python = hasattr(sys, "ps1") and not any(sys.argv[:1])
    at_prompt = bool(_shell is not None or sys.flags.interactive or sys.flags.inspect or python)


_prepared = False


def end_as_daemons_do() -> None:
    """Installs the hooks for exit codes, prompts, SIGTERM, fork() and exit, once per process.

    To be called by each connect(), also to find out whether there is a prompt.
    """
    global _prepared
    _find_prompt()
    if _prepared:
        return
    _prepared = True
    before = sys.excepthook
    leave_by = sys.exit

    def hook(
        kind: type[BaseException], value: BaseException, traceback: types.TracebackType | None
    ) -> None:
        global how_it_ends
        if isinstance(value, Error) and value.exit_code == 0:
            # Not an error, but the end of the job: no traceback.
            print(f"holdfast: {value}", file=sys.stderr, flush=True)
        else:
            before(kind, value, traceback)
        # In IPython only code that handles events calls this.
        if at_prompt:
            _before_prompt(value)
            return
        how_it_ends = value
        _leave_all()
        if isinstance(value, Error):
            # The interpreter uses this as its exit code, and still cleans up.
            raise SystemExit(value.exit_code)

    def leave_with(status: Any = None, /) -> NoReturn:
        """sys.exit, whose status the interpreter shows to no hook."""
        global how_it_ends
        how_it_ends = SystemExit(status)
        leave_by(status)

    sys.excepthook = hook
    sys.exit = leave_with
    atexit.register(_leave_all)
    os.register_at_fork(after_in_child=_forget_all)
    if threading.current_thread() is threading.main_thread():
        with contextlib.suppress(ValueError):
            if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
                signal.signal(signal.SIGTERM, _stop)
