# SPDX-License-Identifier: Apache-2.0

"""Failures that the cluster does not absorb: one exception class for each way to react.

If an exception is not caught, the process ends with the exit code of a ``ps_worker`` that ends for
the same reason, so that supervisors treat scripts like daemons (docs/operating/exit_codes.md).
"""

from __future__ import annotations


class Error(RuntimeError):
    """Base class of the exceptions below; raised itself when the API is misused.

    Attributes:
        exit_code: Exit code of the process if the exception is not caught: 1, failed; 2, wrong use;
            138, the script can be started again and continues.
        task: The task that the message names, such as "/job:ps/task:1", or "".
    """

    exit_code: int = 1
    task: str = ""

    def __init__(self, message: str, *, exit_code: int | None = None, task: str = "") -> None:
        super().__init__(message)
        if exit_code is not None:
            self.exit_code = exit_code
        self.task = task


class RolledBack(Error):
    """The job went back to an earlier step. Raised only with ``strict=True``.

    Another call of ``Cluster.batches`` continues from that step.

    Attributes:
        step: The restored step.
    """

    exit_code = 138

    def __init__(self, step: int) -> None:
        super().__init__(f"the job was rolled back to step {step}")
        self.step = step


class Fenced(Error):
    """This worker was fenced: its lease ran out, or another process took its place."""

    exit_code = 138


class JobFailed(Error):
    """The job has failed, for every worker."""

    @property
    def reason(self) -> str:
        """The reason, with the name of the task at fault."""
        return str(self)


class Stopped(Error):
    """An operator has stopped the job, with ``holdfast stop``.

    When started again with the same checkpoint directory, the job goes on from the step that the
    message names. If the exception is not caught, the process ends with 0.
    """

    exit_code = 0


class Unavailable(Error):
    """``task`` could not be reached in time, or a wait timed out."""

    exit_code = 138


class Refused(Error):
    """The cluster refuses this worker's arguments, place or declaration."""

    exit_code = 2
    # Whether this worker differs from the others, which train without it.
    _differs = False

    def _adding(self, way_out: str) -> Refused:
        """The same error, with another way out."""
        error = Refused(f"{self}; {way_out}", exit_code=self.exit_code, task=self.task)
        error._differs = self._differs
        return error

    @property
    def what(self) -> str:
        """What is wrong, and with which field."""
        return str(self)


for _class in (Error, RolledBack, Fenced, JobFailed, Stopped, Unavailable, Refused):
    _class.__module__ = "holdfast"  # as users know them, in tracebacks
