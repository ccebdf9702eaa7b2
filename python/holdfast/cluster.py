# SPDX-License-Identifier: Apache-2.0

"""A process's connection to a cluster, and its training loop."""

from __future__ import annotations

import contextlib
import ctypes
import json
import logging
import math
import os
import time
import types
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NoReturn

import numpy as np
import numpy.typing as npt

from holdfast import _arguments, _native, _process, _rows, job
from holdfast._loop import Loop, Outcomes, Place, copy_into
from holdfast._native import SLICE_MS, library
from holdfast._status import Status
from holdfast.checkpoint import load_checkpoint
from holdfast.errors import Error, Refused, RolledBack
from holdfast.job import Float32Array
from holdfast.table import EmbeddingTable, tables_of

# Time limits for leaving the cluster; the second applies after Ctrl-C and errors.
_LEAVE_MS = 10_000
_LEAVE_INTERRUPTED_MS = 1_000

# Pause before a checkpoint that cannot be read is tried again.
_UNREADABLE_SECONDS = 1.0

_log = logging.getLogger("holdfast")


def _text_of(error: BaseException) -> str:
    """Its text; the error has to be told even if its own class cannot say what it is."""
    try:
        return str(error)
    except Exception as unreadable:
        return f"(its text cannot be read: {type(unreadable).__name__})"


def connect(
    cluster: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    *,
    job_name: str | None = None,
    task_index: int | None = None,
    ps_hosts: str | None = None,
    worker_hosts: str | None = None,
    chief_hosts: str | None = None,
    tls_dir: str | os.PathLike[str] | None = None,
    insecure: bool | None = None,
    connect_timeout: float | None = None,
    recovery_timeout: float | None = None,
    same_host: str | None = None,
    same_host_dir: str | os.PathLike[str] | None = None,
    data_digest: str | None = None,
    trace: str | os.PathLike[str] | None = None,
) -> Cluster:
    """Joins a cluster, and returns once every ps answers.

    By default the environment variable ``TF_CONFIG`` says which cluster to join and which of its
    tasks this process is; ``holdfast local -- python train.py`` and Kubeflow set it.

    From then on, an uncaught ``holdfast.Error`` ends the process with the error's exit code, and
    SIGTERM raises ``SystemExit(138)``, so that the worker leaves properly, unless the script has a
    handler of its own.

    A process has each place once: connecting again as the same task of the same cluster leaves
    with the earlier connection, so that a cell of a notebook can be corrected and run again.

    Args:
        cluster: The ClusterSpec in TensorFlow's form, {"ps": ["host:port", ...], "worker":
            [...]}: a mapping, JSON, or the path of a file with JSON.
        job_name: "worker", "chief", "evaluator" (see ``Cluster.evaluate``), or "client" for a
            process that only reads.
        task_index: From 0; a client needs none.
        ps_hosts: Instead of ``cluster``: host:port of each ps, separated by commas.
        worker_hosts: The same for the workers.
        chief_hosts: The same for the chief.
        tls_dir: Folder with ca.crt, tls.crt and tls.key of the task. Default: the
            environment variable ``HOLDFAST_TLS_DIR``.
        insecure: Whether ps may be on other machines without TLS. Default: whether the
            environment variable ``HOLDFAST_INSECURE`` is 1.
        connect_timeout: Seconds within which every ps must answer. Default 300.
        recovery_timeout: Seconds that a lost cluster may take to come back. Default 300.
        same_host: "off" sends tensors over the network even to a ps on this host. Default: "auto",
            which uses shared memory if possible. The results are the same bits.
        same_host_dir: Use shared memory only with ps whose socket is in this folder, such as a
            volume that containers share. Default: the environment variable
            ``HOLDFAST_SAME_HOST_DIR``, otherwise any ps on this host.
        data_digest: Any text that identifies the training data; workers with different
            ones are refused.
        trace: File to which the worker writes a trace when it leaves (docs/operating/tracing.md);
            "%t" in its name stands for the task. Default: none.

    Returns:
        The cluster, to be used in a ``with`` statement.

    Raises:
        Refused: An argument is wrong, or the cluster refuses this task.
        FileNotFoundError: The file named by ``cluster`` or ``tls_dir`` does not exist.
        Unavailable: A ps did not answer in time.
        JobFailed: The job has already failed.
    """
    if isinstance(cluster, Mapping):
        cluster = json.dumps(cluster)
    if insecure is None:
        insecure = os.environ.get("HOLDFAST_INSECURE") == "1"
    tls_dir = os.environ.get("HOLDFAST_TLS_DIR") if tls_dir is None else tls_dir
    if same_host_dir is None:
        same_host_dir = os.environ.get("HOLDFAST_SAME_HOST_DIR")
    settings = {
        "cluster_spec": None if cluster is None else _native.path_bytes(cluster),
        "job_name": job_name,
        "task_index": None if task_index is None else str(task_index),
        "ps_hosts": ps_hosts,
        "worker_hosts": worker_hosts,
        "chief_hosts": chief_hosts,
        "tls_dir": None if not tls_dir else _native.path_bytes(tls_dir),
        "insecure": "true" if insecure else None,
        "connect_timeout": None if connect_timeout is None else repr(float(connect_timeout)),
        "recovery_timeout": None if recovery_timeout is None else repr(float(recovery_timeout)),
        "same_host": same_host,
        "same_host_dir": None if not same_host_dir else _native.path_bytes(same_host_dir),
        "data_digest": data_digest,
        "trace": None if trace is None else _native.path_bytes(trace),
    }
    _process.end_as_daemons_do()
    connected = Cluster(settings)
    try:
        _native.wait(library.holdfast_await_connected, connected._handle, SLICE_MS)
    except BaseException:
        connected._end("", _LEAVE_INTERRUPTED_MS)
        raise
    return connected


def _place_of(settings: Mapping[str, str | bytes | None]) -> tuple[str, str] | None:
    """The place in a cluster that the settings name: addresses of the ps, and the task.

    None for a client, which has no place, and for settings that ``holdfast_connect`` will refuse.
    """
    names = ("ps_hosts", "cluster_spec", "job_name", "task_index")
    given = [settings[name] for name in names]
    try:
        hosts, spec, job_name, index = [v if v is None else os.fsdecode(v) for v in given]
        config = json.loads(os.environ.get("TF_CONFIG", "{}"))
        cluster = config
        if spec is not None and spec.lstrip().startswith("{"):
            cluster = json.loads(spec)
        elif spec is not None:
            with open(spec, encoding="utf-8") as file:
                cluster = json.load(file)
        ps = cluster.get("cluster", cluster)["ps"] if hosts is None else hosts.split(",")
        if job_name is None:
            job_name, index = config["task"]["type"], config["task"]["index"]
        if job_name == "client" or index is None:
            return None
        return json.dumps(ps), f"{job_name}:{int(index)}"
    except (AttributeError, KeyError, OSError, TypeError, ValueError):
        return None


class Cluster:
    """A process's membership of a cluster, made by ``connect``.

    Leaving the ``with`` statement leaves the cluster. If the job is not done, this worker
    steps down, and another may take its place; ``finish`` ends the job for all. An exception
    raised by the script's own code ends the job, and every worker is told the reason; at a
    prompt (Jupyter, IPython, ``python -i``) only if it left a loop over batches. ``Refused``
    ends it, too, once the variables exist, because then an argument is wrong, unless this
    worker differs from the others in what ``agree`` compares.

    A cluster belongs to one process: it cannot be pickled, and after ``os.fork()`` all
    methods raise ``Error`` in the child. Only one thread at a time may call its methods.
    A native thread renews the worker's lease, whatever Python does meanwhile.

    Attributes:
        task: This process's task, such as "/job:worker/task:1".
        replica: Its index among the workers, from 0; 0 for other tasks.
        replicas: Number of workers in the cluster.
        is_chief: Whether it is replica 0.
    """

    def __init__(self, settings: Mapping[str, str | bytes | None]) -> None:
        options = _native.options(settings)
        handle = ctypes.c_void_p()
        # Why the cluster cannot be used; empty while it can be used.
        self._unusable = "the cluster was never connected"
        self._place = _place_of(settings)
        if self._place is not None:
            _process.leave_place(self._place)
        _native.call(library.holdfast_connect, options, len(options), ctypes.byref(handle))
        assert handle.value is not None
        self._handle: int = handle.value
        self._unusable = ""
        place = _native.Place()
        _native.call(library.holdfast_get_place, self._handle, ctypes.byref(place))
        self.task = f"/job:{place.job.decode()}/task:{place.index}"
        self.replica = int(place.replica)
        self.replicas = int(place.num_replicas)
        self.is_chief = bool(place.is_chief)
        self._evaluates = place.job == b"evaluator"
        self._trains = place.job in (b"worker", b"chief")
        # At a prompt: the frames in which the body of a loop over batches runs.
        self._loop_frames: list[types.FrameType] = []
        # None until they exist on every ps.
        self._variables: list[tuple[str, tuple[int, ...], bool]] | None = None
        self._tables: dict[str, _rows.Table] = {}
        self._loop: Loop | None = None
        # Also set if an interrupt came before the loop was there.
        self._loop_handle = ctypes.c_void_p()
        _process.open_clusters.add(self)
        # For a cluster that is no longer used but was not closed; _process handles exits.
        self._finalizer = weakref.finalize(
            self, _process.leave, self._handle, "", _LEAVE_INTERRUPTED_MS
        )
        self._finalizer.atexit = False

    def __enter__(self) -> Cluster:
        self._check()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: types.TracebackType | None,
    ) -> None:
        self._end_with(value)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a holdfast.Cluster belongs to one process and cannot be pickled: "
            "connect in the process that trains"
        )

    def declare(
        self,
        variables: Mapping[str, job.Variable | npt.ArrayLike],
        *,
        optimizer: job.Optimizer,
        steps: int,
        consistency: job.Consistency | None = None,
        seed: int = 0,
        examples: Literal["by_step", "by_ticket"] | None = None,
        clipping: job.GradientClipping | None = None,
        placement: Literal["round_robin", "greedy_by_bytes"] | None = None,
        partitioner: job.Partitioner | None = None,
        checkpoints: job.Checkpoints | None = None,
        lost_workers: job.LostWorkers | None = None,
        timeouts: job.Timeouts | None = None,
        loss_scale: job.LossScale | None = None,
        max_consecutive_not_finite: int | None = None,
        evaluation: job.Evaluation | None = None,
        tables: Mapping[str, EmbeddingTable] | None = None,
        agreed: Mapping[str, str | int] | None = None,
    ) -> None:
        """Declares the job, and waits until its variables exist on every ps.

        Every worker must declare the same job. The chief's first values count; a job that
        resumes from a checkpoint takes the checkpoint's values instead. A declaration that was
        refused can be corrected, by another call.

        Args:
            variables: Variables by name: a ``Variable``, or a float32 array of any shape
                that holds its first values. Names consist of letters, digits and "_-./".
                A job with ``tables`` may have none: ``{}``.
            optimizer: The rule by which a step changes variables.
            steps: Global steps in the whole job; in asynchronous jobs, pushes. Synchronous
                jobs with examples by ticket hand out as many batches as fill all steps.
            consistency: When pushes become a step. Default: ``Synchronous()``.
            seed: Seed of the values made by initializers.
            examples: How batches are assigned to workers: "by_step", by the step and the
                seat in it, or "by_ticket", as workers ask for them. Default: by step in
                synchronous jobs, by ticket in asynchronous ones.
            clipping: Limits of gradients. Default: none.
            placement: How slices are assigned to ps. Default: "round_robin".
            partitioner: How variables are partitioned into slices. Default: not at all.
            checkpoints: When the state of the job is saved.
            lost_workers: What the job does when a worker is lost.
            timeouts: How long the job waits before it fails.
            loss_scale: Loss scaling for gradients computed in float16; see
                ``Cluster.loss_scale``. Default: none.
            max_consecutive_not_finite: The job fails after this many consecutive
                gradients that are not finite. Default 100; 0 means never.
            evaluation: When evaluators evaluate checkpoints, which of these are kept as the
                best, and whether the job ends early. Default: evaluators take the newest
                checkpoint whenever they are ready for one.
            tables: Embedding tables by name. Default: none.
            agreed: Facts that must be the same in all workers and after each restart, by
                name; see ``agree``. Default: none.

        Raises:
            TypeError, ValueError: An argument has the wrong type or shape.
            Refused: A field is out of range, or another job was declared before, or the job
                has another value for a name in ``agreed``.
            JobFailed, Unavailable: The variables did not come to exist.
        """
        self._check()
        steps = _arguments.integer("steps", steps)
        seed = _arguments.integer("seed", seed)
        declared = job.variables_of(variables)
        declared_tables = tables_of(tables)
        if not isinstance(optimizer, job.Optimizer):
            raise TypeError(
                f"optimizer: expected one of holdfast's, such as Sgd, got {optimizer!r}"
            )
        optimizers = job.optimizers_of([*declared.values(), *declared_tables.values()], optimizer)
        description = job.Job(
            optimizers=optimizers,
            consistency=job.Synchronous() if consistency is None else consistency,
            placement=placement,
            seed=seed,
            total_steps=steps,
            timeouts=timeouts,
            clipping=clipping,
            partitioner=partitioner,
            examples=examples,
            checkpoints=checkpoints,
            lost_workers=lost_workers,
            loss_scale=loss_scale,
            max_consecutive_not_finite=max_consecutive_not_finite,
            evaluation=evaluation,
        )
        text = job.declaration_text(declared, description)
        text += "".join(table.text(name, optimizers) for name, table in declared_tables.items())
        text += job.facts_text(job.facts_of(agreed or {}))
        # Copied by the library, which may be asked for them again later.
        values = [variable.value for variable in declared.values()]
        pointers = (ctypes.c_void_p * len(values))(
            *[None if value is None else value.ctypes.data for value in values]
        )
        try:
            _native.wait(
                library.holdfast_declare,
                self._handle,
                text.encode(),
                pointers,
                len(values),
                SLICE_MS,
            )
            self._await_variables()
        except Refused as error:
            named = job.optimizers_named(str(error), {**declared, **declared_tables}, optimizers)
            if not named:
                raise
            raise Refused(
                f"{error} ({named})", exit_code=error.exit_code, task=error.task
            ) from None

    def agree(self, facts: Mapping[str, str | int]) -> None:
        """Compares facts with all other workers, and with earlier lives of this one.

        What a worker keeps to itself can differ without a word: the length of its data set, the
        size of its batches, weights that are not variables of the job. The job keeps the first
        value that a worker brings for a name, also when it resumes from a checkpoint, and refuses
        a worker that has another one.

        To be called after ``declare``, or instead of its argument ``agreed``, as often as there
        are new facts: once per loop, not for each step.

        Args:
            facts: Numbers and texts, such as digests, by name. The name is part of the error, so
                it should say what differs: "dataset length". At most 256 bytes each, and
                10,000 names in a job.

        Raises:
            TypeError: A name is no text, or a value neither text nor a whole number.
            Refused: The job has another value for one of the names.
            JobFailed, Unavailable: The coordinator did not answer.
        """
        self._check()
        options = _native.options(job.facts_of(facts))
        try:
            _native.wait(library.holdfast_agree, self._handle, options, len(options), SLICE_MS)
        except Refused as error:
            error._differs = True
            raise

    def batches(
        self, *, on_rollback: Callable[[int], object] | None = None, strict: bool = False
    ) -> Iterator[int]:
        """Hands out the batches for which this worker computes gradients, until the job is done.

        Each batch must be answered by one ``push``, or by ``skip``, before the next one is
        requested. After a ``break`` or an exception, such as KeyboardInterrupt at any moment,
        another call resumes the iteration. A batch that was not answered is handed out again, and
        nothing that was handed in for it counts.

        When a ps was lost and the job has gone back to its last checkpoint, work in
        progress is dropped, and ``batches`` and ``pull`` continue from the restored step.

        Args:
            on_rollback: Called with the restored step before its first batch is handed
                out.
            strict: Whether to raise ``RolledBack`` instead.

        Yields:
            The index of a batch in the training stream; ``batch_indices`` returns its examples.
            Assigned by step, it is step x seats + seat; by ticket, the ticket's index. An index is
            handed out again, to this worker or another, if its gradient was lost.

        Raises:
            Error: ``declare`` was not called, or a batch was not answered.
            Fenced, JobFailed, Stopped, Unavailable: The worker cannot go on.
            RolledBack: The job was rolled back, with ``strict``.
        """
        loop = self._begin()
        while True:
            turn = loop.take()
            if turn.rolled_back and loop.told != turn.number:
                # Told once, but again if an interrupt comes first.
                if strict:
                    try:
                        raise RolledBack(int(turn.step))
                    finally:
                        loop.told = turn.number
                if on_rollback is not None:
                    on_rollback(int(turn.step))
                loop.told = turn.number
            if turn.done:
                _process.loop_ended(self)
                return
            _process.hands_out(self)
            yield int(turn.batch)
            self._check()
            if loop.is_open():
                raise Error(
                    f"batch {int(turn.batch)} was neither pushed nor skipped: call "
                    "push(...) or skip() before asking for the next batch"
                )

    def pull(
        self, *, into: Mapping[str, Float32Array] | None = None, copy: bool = False
    ) -> dict[str, Float32Array]:
        """The values of all variables.

        Within ``batches`` these are the values at which the gradient of the current batch must be
        computed; after a ``push``, those for the next batch; and after the last one, the final
        values. They have already arrived, so the call does not wait. Elsewhere the newest values
        are fetched.

        Args:
            into: Writable float32 arrays by name; their variables' values are copied into
                them, and they are returned.
            copy: Whether to return copies, which may be written to or kept for long. Otherwise the
                arrays are read-only and are not copied: if a ps is on this host, they may be in its
                memory. They do not change while they are kept; but while arrays of an earlier batch
                are kept in addition to those of this batch and the next, each later one costs a
                copy. A forked process must not read them.

        Returns:
            float32 arrays by name, in the order declared.

        Raises:
            TypeError, ValueError: An array of ``into`` does not fit.
            Unavailable: The values could not be fetched.
        """
        self._check()
        values = self._fetch() if self._loop is None else self._loop.values()
        if into is not None:
            return copy_into(into, values)
        return {name: np.array(value) for name, value in values.items()} if copy else dict(values)

    def add(self, gradients: Mapping[str, Float32Array]) -> None:
        """Hands in some gradients of the current batch before the others are available.

        If the gradients of all variables are larger than one message (4 MiB), these are sent at
        once, while the others are computed. ``push`` hands in the others, and ends the batch.

        What counts is the content of the arrays when ``push`` is called. If checksums show that one
        was changed after it had been sent, everything is sent again.

        Args:
            gradients: Gradients by name, as for ``push``.

        Raises:
            TypeError: A gradient has the wrong dtype.
            ValueError: A gradient is unknown, was handed in before, or has the wrong shape.
            Error: There is no current batch.
        """
        self._need_turn().add(gradients)

    def pull_rows(self, ids: Mapping[str, npt.ArrayLike]) -> dict[str, Float32Array]:
        """Rows of embedding tables, read from the ps in one call.

        Within ``batches`` these are the rows at which the gradient of the current batch must be
        computed: in synchronous jobs, of the same step as ``pull``, unless that step has closed
        without this worker. After the last ``push`` they are the final rows, and elsewhere the
        newest. Rows requested by ``want_rows`` have already arrived. If the job is rolled back
        meanwhile, rows are 0, and the current batch does not count, as always after a rollback.

        Args:
            ids: The ids of rows, by table: integers in an array of any shape, in any order,
                possibly repeated.

        Returns:
            float32 arrays by table, of the shape of its ids followed by ``row_length``. A row that
            no step has changed has its first values.

        Raises:
            TypeError, ValueError: There is no such table, or ids are not unsigned integers.
            Unavailable: The rows could not be read.
        """
        self._check()
        self._need_variables()
        request = _rows.Request(self._tables, ids)
        if self._loop is None:
            return _rows.pull(self._handle, request)
        return self._loop.read_rows(request)

    def want_rows(self, ids: Mapping[str, npt.ArrayLike]) -> None:
        """Requests rows that then arrive with the values of the next batch, in the same call.

        For batches that are known before they are handed out, such as those assigned by step: if
        called before ``push``, it makes ``pull_rows`` return at once. A wrong guess only costs
        time.

        Args:
            ids: As for ``pull_rows``.

        Raises:
            TypeError, ValueError: As for ``pull_rows``.
            Error: ``declare`` was not called.
        """
        self._begin().want_rows(_rows.Request(self._tables, ids))

    def add_rows(self, table: str, ids: npt.ArrayLike, gradients: npt.ArrayLike) -> None:
        """Hands in the gradients of all rows of one table that the current batch uses.

        To be called once for each table, before ``push``, which ends the batch; a table without a
        call has no gradients. Gradients of repeated ids are added up. The arrays may be changed as
        soon as the call returns.

        Args:
            table: Its name.
            ids: As for ``pull_rows``.
            gradients: float32 of the shape that ``pull_rows`` returns for these ids, averaged over
                the examples, like those of variables.

        Raises:
            TypeError, ValueError: An array has the wrong dtype or shape.
            Refused: There are more than ``max_rows_per_push`` different ids, or rows of this table
                were handed in before; or the sum of a row, which the error names, is not finite. In
                the last case, unless the rows are handed in again, ``push`` contributes nothing and
                is counted as not finite.
            Error: There is no current batch.
        """
        loop = self._need_turn()
        of_table = _rows.find(self._tables, table)
        array = _rows.ids_of(table, ids)
        loop.add_rows(
            _rows.Request(self._tables, {table: array}),
            _rows.gradients_of(of_table, array, gradients),
        )

    def push(
        self,
        gradients: Mapping[str, Float32Array] | Sequence[Float32Array],
        *,
        loss: float | None,
        examples: int,
        clip_factor: float | None = None,
    ) -> None:
        """Contributes the gradient of the current batch, exactly once.

        Returns when the values for the next batch have arrived; the arrays may then be
        changed. Rollbacks are handled by ``batches``.

        Args:
            gradients: The gradient of each trainable variable that ``add`` was not given,
                by name or in the order declared: float32 arrays of the variables' shapes,
                averaged over the examples. Arrays that are not C-contiguous are copied
                first.
            loss: Mean loss over the examples; None if it is not known. If it or a gradient is not
                finite, the push contributes nothing, and is counted as not finite.
            examples: Number of examples in the batch, its weight in the step. With 0 the
                push contributes nothing.
            clip_factor: Factor from 0 to 1 for the gradient. With 0 the push changes nothing, not
                even moments, as with 0 examples. Default: what the job's ``clipping`` demands.

        Raises:
            TypeError: A gradient has the wrong dtype, or an argument is not a number.
            ValueError: A gradient is missing, unknown, or has the wrong shape, or a number is out
                of range. Like after a TypeError, nothing was pushed, and the batch may be pushed.
            Error: There is no current batch.
            Fenced, JobFailed, Stopped, Unavailable: The worker cannot go on.
        """
        if self._unusable or self._loop is None:
            self._need_turn()
        assert self._loop is not None
        self._loop.push(gradients, *_arguments.of_push(examples, loss, clip_factor))

    def skip(self) -> None:
        """Answers the current batch without a gradient."""
        self._need_turn().contribute_nothing()

    def finish(self) -> None:
        """Ends the job for all workers before its last step, and waits until it is done.

        The job ends as after its last step, at the first step at which it can: every worker's loop
        over ``batches`` ends, ``pull`` returns the final values, and the last checkpoint is taken
        if the ps have a ``--checkpoint_dir``. To be called within ``batches`` or elsewhere; a
        current batch that was not answered does not count. Several workers may call it. It does
        nothing when the job is done.

            for batch in cluster.batches():
                ...
                cluster.push(gradients, loss=loss, examples=len(x))
                if loss < 0.01:
                    cluster.finish()
            values = cluster.pull()

        Raises:
            Refused: This process is not a worker.
            Error: Nothing was declared yet.
            Fenced, JobFailed, Stopped, Unavailable: The job did not end this way.
        """
        self._check()
        _native.wait(library.holdfast_finish, self._handle, SLICE_MS)
        if self._loop is not None:
            self._loop.finish()

    def waiting_for_input(self) -> contextlib.AbstractContextManager[None]:
        """Counts the time in its ``with`` statement as a wait for input.

        Otherwise all of the script's time within ``batches`` counts as computation. The status
        page, ``holdfast status``, metrics and traces distinguish the two, and name workers that
        mostly wait for their input. Before the first batch and after the last one, this has no
        effect.

            for batch in cluster.batches():
                with cluster.waiting_for_input():
                    x, y = next(source)
        """
        self._check()
        return contextlib.nullcontext() if self._loop is None else self._loop.waiting_for_input()

    @property
    def step(self) -> int:
        """Step of the values that ``pull`` returns within ``batches``."""
        return int(self._need_turn().current().step)

    @property
    def loss_scale(self) -> float:
        """Factor for the loss; gradients must be divided by it before ``push``."""
        return float(self._need_turn().current().loss_scale)

    def outcomes(self) -> Outcomes:
        """Counts of this worker's pushes by outcome."""
        self._check()
        return Outcomes(0, 0, 0, 0, 0) if self._loop is None else self._loop.outcomes()

    def status(self) -> Status:
        """Fetches the state of the job from the coordinator.

        Raises:
            Unavailable: The coordinator did not answer in time.
        """
        self._check()
        text = ctypes.c_void_p()
        _native.wait(library.holdfast_get_status, self._handle, SLICE_MS, ctypes.byref(text))
        return Status._of(_native.take_text(text))

    def checkpoint(self) -> int:
        """Requests a checkpoint, and waits until it is on disk.

        Returns:
            The step of the checkpoint.

        Raises:
            Error: The ps have no ``--checkpoint_dir``.
            JobFailed, Unavailable: The checkpoint could not be written.
        """
        self._check()
        step = ctypes.c_uint64()
        _native.wait(library.holdfast_save_checkpoint, self._handle, SLICE_MS, ctypes.byref(step))
        return int(step.value)

    def report_evaluation(
        self,
        *,
        step: int,
        examples: int,
        loss: float,
        accuracy: float | None = None,
        mean_absolute_error: float | None = None,
        mean_squared_error: float | None = None,
        top_k_accuracy: float | None = None,
        auc: float | None = None,
        calibration: float | None = None,
        metrics: Mapping[str, float] | None = None,
    ) -> None:
        """Reports an evaluation of the model, for ``status`` and the cluster's metrics.

        Evaluators, whose reports decide which checkpoints are kept and whether the job ends
        early, use ``evaluate``.

        Args:
            step: Step of the values that were evaluated.
            examples: Number of examples evaluated on.
            loss: Mean loss over the examples.
            accuracy: Share of the examples whose class was predicted correctly.
            mean_absolute_error: Mean over examples and outputs.
            mean_squared_error: Mean over examples and outputs.
            top_k_accuracy: Share of the examples whose class is among the first k predicted.
            auc: Area under the ROC curve.
            calibration: Sum of the predicted probabilities of class 1, divided by the number of
                examples of class 1.
            metrics: Additional metrics by name, at most 32.

        Raises:
            TypeError, ValueError: An argument is not a number, or out of range.
            Refused: A metric cannot be kept.
        """
        self._check()
        step = _arguments.integer("step", step)
        examples = _arguments.integer("examples", examples)
        figures = {
            "loss": loss,
            "accuracy": accuracy,
            "mean_absolute_error": mean_absolute_error,
            "mean_squared_error": mean_squared_error,
            "top_k_accuracy": top_k_accuracy,
            "auc": auc,
            "calibration": calibration,
            **(metrics or {}),
        }
        self._report(
            None,
            step,
            examples,
            {name: value for name, value in figures.items() if value is not None},
        )

    def evaluate(
        self,
        function: Callable[[dict[str, Float32Array], int], Mapping[str, float] | float],
        *,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        examples: int = 0,
    ) -> None:
        """Evaluates checkpoints as the job takes them, until it is done.

        For a process that is a task of the job "evaluator". Training does not wait for it, and goes
        on without it. The ``evaluation`` given to ``declare`` says which checkpoints are evaluated;
        the last one always is. An exception in ``function`` ends this process, but not the job.

        Args:
            function: Called with the variables of a checkpoint, float32 arrays by name that it may
                change, and its step. It returns the loss, or metrics by name: those of
                ``report_evaluation`` and any others.
            checkpoint_dir: The ``--checkpoint_dir`` of the ps, as this process sees it.
                Default: the environment variable ``HOLDFAST_CHECKPOINT_DIR``.
            examples: Number of examples evaluated on, for the report.

        Raises:
            Error: This process is not an evaluator, or the ps have no ``--checkpoint_dir``.
            ValueError: ``checkpoint_dir`` is not known.
            FileNotFoundError: ``checkpoint_dir`` does not exist.
            JobFailed, Stopped, Unavailable: The job ended in another way.
        """
        self._check()
        examples = _arguments.integer("examples", examples)
        folder = checkpoint_dir or os.environ.get("HOLDFAST_CHECKPOINT_DIR")
        if folder is None:
            raise ValueError("checkpoint_dir is not known: pass it, or set HOLDFAST_CHECKPOINT_DIR")
        missing = ""
        while True:
            evaluation = _native.Evaluation()
            _native.wait(
                library.holdfast_next_evaluation,
                self._handle,
                SLICE_MS,
                ctypes.byref(evaluation),
                patiently=True,
            )
            if evaluation.done:
                return
            name = evaluation.name.decode()
            try:
                checkpoint = load_checkpoint(os.path.join(folder, name))
            except (FileNotFoundError, Error) as error:
                if not os.path.isdir(folder):
                    raise
                # The job may have gone back to an earlier step, and removed the checkpoint.
                if name != missing:
                    _log.warning("cannot evaluate checkpoint %s: %s", name, error)
                missing = name
                time.sleep(_UNREADABLE_SECONDS)
                continue
            figures = function(checkpoint.values, checkpoint.step)
            if not isinstance(figures, Mapping):
                figures = {"loss": _arguments.number("loss", figures)}
            self._report(evaluation, checkpoint.step, examples, {"loss": math.nan, **figures})

    def _report(
        self,
        evaluation: _native.Evaluation | None,
        step: int,
        examples: int,
        figures: Mapping[str, float],
    ) -> None:
        metrics = (_native.Metric * len(figures))()
        for metric, (name, value) in zip(metrics, figures.items(), strict=True):
            metric.name = _native.text_bytes(name)
            metric.value = _arguments.number(name, value)
        _native.wait(
            library.holdfast_report_metrics,
            self._handle,
            None if evaluation is None else ctypes.byref(evaluation),
            step,
            examples,
            metrics,
            len(metrics),
            SLICE_MS,
        )

    def close(self) -> None:
        """Leaves the cluster, as the end of a ``with`` statement does.

        If the job is not done, this worker steps down, and another may take its place; the job may
        wait for it in vain, so an event says what has happened. To end the job for all workers,
        call ``finish`` before. Arrays returned by ``pull`` stay valid.
        """
        self._end_with(None)

    def _check(self) -> None:
        if self._unusable:
            raise Error(self._unusable)

    def _await_variables(self) -> None:
        _native.wait(library.holdfast_await_variables, self._handle, SLICE_MS)
        count = ctypes.c_size_t()
        _native.call(library.holdfast_get_num_variables, self._handle, ctypes.byref(count))
        variables = []
        for i in range(count.value):
            variable = _native.Variable()
            _native.call(library.holdfast_get_variable, self._handle, i, ctypes.byref(variable))
            variables.append(
                (variable.name.decode(), _native.shape_of(variable), bool(variable.trainable))
            )
        self._tables = _rows.tables_of(self._handle)
        self._variables = variables

    def _need_variables(self) -> list[tuple[str, tuple[int, ...], bool]]:
        if self._variables is None:
            self._await_variables()
        assert self._variables is not None
        return self._variables

    def _begin(self, place: Place | None = None) -> Loop:
        """The loop, which the first call starts, with its values in ``place``."""
        self._check()
        if self._loop is None:
            variables = self._need_variables()
            library.holdfast_loop_free(self._loop_handle)
            self._loop = Loop(self._handle, variables, place, self._loop_handle)
        return self._loop

    def _need_turn(self) -> Loop:
        self._check()
        if self._loop is None:
            raise Error("there is no current batch: it is for the body of a loop over batches()")
        return self._loop

    def _fetch(self) -> dict[str, Float32Array]:
        self._need_variables()
        handle = ctypes.c_void_p()
        _native.call(library.holdfast_pull, self._handle, 0, ctypes.byref(handle))
        assert handle.value is not None
        memory = _native.Memory(handle.value, library.holdfast_values_free)
        _native.wait(library.holdfast_values_wait, memory.handle, SLICE_MS)
        return _native.values_of(memory, writable=False)

    def _end_with(self, value: BaseException | None) -> None:
        """Leaves because of ``value``, which ends the job if it is an error of the script."""
        if value is None:
            self._end("", _LEAVE_MS, early="open")
        elif isinstance(value, SystemExit) and value.code in (None, 0):
            self._end("", _LEAVE_MS, early="ended")
        elif self._evaluates or not _process.ends_job(self, value):
            # The job does not wait for evaluators.
            self._end("", _LEAVE_INTERRUPTED_MS)
        else:
            self._end(f"{self.task}: {type(value).__name__}: {_text_of(value)}", _LEAVE_MS)

    def _step_down(self) -> None:
        """Leaves for a newer connection of this process."""
        self._end("", _LEAVE_MS)

    def _end(
        self, reason: str, timeout_ms: int, *, early: Literal["", "ended", "open"] = ""
    ) -> None:
        if self._unusable:
            return
        if not self._trains or (self._loop is not None and self._loop.done):
            early = ""
        self._unusable = "the cluster was closed"
        # Its memory is freed when there is no view of it left.
        self._loop = None
        self._loop_frames.clear()
        _process.open_clusters.discard(self)
        self._finalizer.detach()
        _process.leave(self._handle, reason, timeout_ms, early=early)
