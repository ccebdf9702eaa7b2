# SPDX-License-Identifier: Apache-2.0

"""Runs one training script under plain PyTorch and under Holdfast, and compares the two.

A script is a function of a Side, which hands out the optimizer and the batches. It is written once,
as torch's users write scripts; which side it runs on is the Side's affair. Each run is a fork of
this process, which has imported torch but has no threads, so that a run costs a tenth of a second,
most of it for the ps.

Plain PyTorch with two workers is two processes that average gradients and the statistics of batch
norm in ``step``, as Holdfast does: what a script does to the gradient of its own batch comes first.
"""

import atexit
import concurrent.futures
import contextlib
import dataclasses
import faulthandler
import gc
import multiprocessing
import os
import pickle
import random
import selectors
import signal
import socket
import struct
import sys
import tempfile
import traceback

import numpy as np
import torch
import torch._dynamo  # torch.optim imports it when it is first used, which takes a second
import torch.nn.utils.parametrizations
import torch.nn.utils.prune
from local_cluster import LocalCluster

import holdfast
import holdfast.torch
from holdfast.torch._data import seed_of

STEPS = 6
SIZE = 4  # examples in a batch
INPUTS = 6
CLASSES = 3
# A run that takes longer is stuck.
LIMIT_SECONDS = 25

_HOLDFAST = os.path.dirname(os.path.abspath(holdfast.__file__)) + os.sep


@dataclasses.dataclass(frozen=True)
class Variant:
    """How a script runs.

    Attributes:
        workers: Number of workers.
        overlap: Whether gradients are sent while a backward pass goes on.
        big: Whether the model has more than 4 MiB, so that Optimizer decides on its own to overlap.
    """

    workers: int = 1
    overlap: bool = False
    big: bool = False

    def __str__(self):
        how = "4 MiB" if self.big else "overlap" if self.overlap else "whole"
        return f"{self.workers} {how}"


@dataclasses.dataclass
class Outcome:
    """What came of one worker's run.

    Attributes:
        first: Values when the optimizer was made, by name in the state dict.
        last: The final values.
        error: The exception that ended the script, as text, and whether the job told it that
            another worker had failed.
        told: Whether the error is what another worker's failure looks like.
        pushed: Why more was pushed than may be when the script was refused.
        log: What the script printed.
    """

    first: dict = dataclasses.field(default_factory=dict)
    last: dict = dataclasses.field(default_factory=dict)
    error: str = ""
    told: bool = False
    pushed: str = ""
    log: str = ""
    trace: str = ""


class Side:
    """What a script sees of the system that trains it.

    Attributes:
        plain: Whether this is plain PyTorch.
        rank: Index of the worker.
        workers: Number of workers.
        variant: How the script runs.
    """

    def __init__(self, variant, rank, steps):
        self.variant = variant
        self.rank = rank
        self.workers = variant.workers
        self.steps = steps
        self.model = None
        self.first = {}

    def net(self, *more):
        """A small classifier; larger in big runs."""
        torch.manual_seed(1)
        width = 1024 if self.variant.big else 5
        between = [torch.nn.Linear(width, width), torch.nn.Tanh()] if self.variant.big else []
        return torch.nn.Sequential(
            torch.nn.Linear(INPUTS, width),
            torch.nn.Tanh(),
            *between,
            *more,
            torch.nn.Linear(width, CLASSES),
        )

    def data(self):
        generator = torch.Generator().manual_seed(2)
        x = torch.randn(60, INPUTS, generator=generator)
        return torch.utils.data.TensorDataset(x, torch.randint(CLASSES, (60,), generator=generator))

    def optimizer(self, model, optimizer, **options):
        raise NotImplementedError

    def batches(self, optimizer, data=None, size=SIZE):
        raise NotImplementedError

    def begin(self, model):
        self.model = model
        self.first = values_of(model)

    @contextlib.contextmanager
    def interrupted(self, line):
        """Ctrl-C arrives before the given line of Holdfast's Python code inside runs."""
        yield

    def did(self, *, again=False):
        """The script has just done what may be refused; the first call counts, or the last."""


def values_of(model):
    with torch.no_grad():
        return {
            name: np.array(value.detach().to_dense().float().cpu().numpy())
            for name, value in model.state_dict().items()
            if torch.is_floating_point(value) and value.device.type != "meta"
        }


def seed_all(seed):
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)


class PlainSide(Side):
    plain = True

    def __init__(self, variant, rank, steps, ring):
        super().__init__(variant, rank, steps)
        self._ring = ring
        # It is kept over loops: a batch that was not answered before a break comes again.
        self.step = 0

    def optimizer(self, model, optimizer, **options):
        self.begin(model)
        return PlainOptimizer(self, model, optimizer, options.get("accumulate", 1))

    def batches(self, optimizer, data=None, size=SIZE):
        return optimizer.batches(self.data() if data is None else data, size)

    def mean(self, values, weight=1.0):
        """The weighted mean over the workers of each array; None counts as zeros."""
        return values if self._ring is None else self._ring.mean(values, weight)


class Ring:
    """Exchanges values between two processes."""

    def __init__(self, connection, rank):
        self._connection = connection
        self._rank = rank

    def _send(self, data):
        self._connection.sendall(struct.pack("<Q", len(data)) + data)

    def _receive(self):
        (length,) = struct.unpack("<Q", self._exactly(8))
        return self._exactly(length)

    def _exactly(self, count):
        data = bytearray()
        while len(data) < count:
            piece = self._connection.recv(min(count - len(data), 1 << 20))
            if not piece:
                raise EOFError("the other worker has ended")
            data += piece
        return bytes(data)

    def mean(self, values, weight):
        own = pickle.dumps((values, weight))
        if self._rank == 0:
            self._send(own)
            theirs, other = pickle.loads(self._receive())
        else:
            theirs, other = pickle.loads(self._receive())
            self._send(own)
        total = weight + other
        if total == 0:
            return values
        result = []
        for a, b in zip(values, theirs, strict=True):
            if a is None and b is None:
                result.append(None)
                continue
            a = np.zeros_like(b) if a is None else a
            b = np.zeros_like(a) if b is None else b
            sum_ = a * np.float32(weight / total) + b * np.float32(other / total)
            result.append(np.asarray(sum_))
        return result


class PlainOptimizer:
    """torch's optimizer with the interface of holdfast.torch.Optimizer."""

    def __init__(self, side, model, inner, accumulate):
        self._side = side
        self._model = model
        self._inner = inner
        self._accumulate = accumulate
        self._pass = 0
        self._answered = False
        self.loss_scale = 1.0
        self.is_chief = side.rank == 0
        # The statistics of batch norm when the batch of a step was first handed out.
        self._began = -1
        self._statistics = []
        if accumulate > 1:
            # As scripts divide the loss by the number of passes.
            for parameter in model.parameters():
                if parameter.requires_grad:
                    parameter.register_hook(lambda gradient: gradient / accumulate)

    def batches(self, data, size):
        side = self._side
        while side.step < side.steps:
            batch = side.step * side.workers + side.rank
            self._begin()
            rows = holdfast.batch_indices(batch, len(data), size * self._accumulate, 0)
            rates = [group["lr"] for group in self.param_groups]
            for number in range(self._accumulate):
                self._pass = number
                self._answered = False
                chosen = torch.from_numpy(rows[number * size : (number + 1) * size])
                seed_all(seed_of(0, (batch, number), "model"))
                if isinstance(data, torch.utils.data.TensorDataset):
                    yield [tensor[chosen] for tensor in data.tensors]
                else:
                    yield chosen
                if self._answered:
                    break
            # A step that GradScaler leaves out is one that changes nothing.
            if not self._answered:
                self._restore()
                if side.workers > 1:  # the other worker may make one
                    self._inner.zero_grad()
                    self._exchange(0.0)
                    self._step_at(rates)
                side.step += 1

    def _step_at(self, rates):
        """A step at the rates of its batch: the script may have called its scheduler since."""
        later = [group["lr"] for group in self.param_groups]
        for group, rate in zip(self.param_groups, rates, strict=True):
            group["lr"] = rate
        self._inner.step()
        for group, rate in zip(self.param_groups, later, strict=True):
            group["lr"] = rate

    @property
    def param_groups(self):
        return self._inner.param_groups

    @property
    def state(self):
        return self._inner.state

    @property
    def defaults(self):
        return self._inner.defaults

    def add_param_group(self, group):
        self._inner.add_param_group(group)

    def state_dict(self):
        return self._inner.state_dict()

    def load_state_dict(self, state):
        self._inner.load_state_dict(state)

    def zero_grad(self, set_to_none=True):
        if self._pass == 0:
            self._inner.zero_grad(set_to_none=set_to_none)

    def clip_grad_norm(self, max_norm):
        parameters = [p for group in self.param_groups for p in group["params"]]
        if self._pass < self._accumulate - 1:
            return torch.tensor(0.0)
        return torch.nn.utils.clip_grad_norm_(parameters, max_norm)

    def skip(self):
        self._side.step += 1
        self._answered = True

    def step(self, loss=None, *, examples=None):
        if callable(loss):
            with torch.enable_grad():
                loss = loss()
        if self._pass < self._accumulate - 1:
            return loss
        if self._side.workers > 1:
            self._exchange(float(SIZE if examples is None else examples))
        self._inner.step()
        self._side.step += 1
        self._answered = True
        return loss

    def _exchange(self, weight):
        parameters = [p for group in self.param_groups for p in group["params"]]
        gradients = [
            None if p.grad is None else p.grad.detach().to_dense().float().numpy()
            for p in parameters
        ]
        for parameter, mean in zip(parameters, self._side.mean(gradients, weight), strict=True):
            if mean is not None:
                parameter.grad = torch.from_numpy(mean).to(parameter.dtype)
        statistics = self._all_statistics()
        means = self._side.mean([buffer.numpy() for buffer in statistics], weight)
        for buffer, mean in zip(statistics, means, strict=True):
            buffer.copy_(torch.from_numpy(mean))

    def _all_statistics(self):
        return [
            buffer
            for module in self._model.modules()
            if isinstance(module, torch.nn.modules.batchnorm._NormBase)
            for buffer in (module.running_mean, module.running_var)
            if buffer is not None
        ]

    def _restore(self):
        for buffer, kept in zip(self._all_statistics(), self._statistics, strict=True):
            buffer.copy_(kept)

    def _begin(self):
        """A batch that is handed out again counts once in the statistics, too."""
        if self._began == self._side.step:
            self._restore()
        self._began = self._side.step
        self._statistics = [buffer.clone() for buffer in self._all_statistics()]


class HoldfastSide(Side):
    plain = False

    def __init__(self, variant, rank, steps, cluster):
        super().__init__(variant, rank, steps)
        self.cluster = cluster
        self._pushed = 0
        self._did = None

    def optimizer(self, model, optimizer, **options):
        self.begin(model)
        if self.variant.overlap and not self.variant.big:
            options.setdefault("overlap", True)
        options.setdefault("steps", self.steps)
        return holdfast.torch.Optimizer(model, optimizer, cluster=self.cluster, **options)

    def batches(self, optimizer, data=None, size=SIZE):
        for batch in optimizer.batches(self.data() if data is None else data, size):
            self._pushed = self.cluster.outcomes().accepted
            yield batch

    def did(self, *, again=False):
        if self._did is None or again:
            try:
                self._did = self.cluster.outcomes().accepted
            except KeyboardInterrupt:  # the script's, which arrives here by chance
                self._did = self.cluster.outcomes().accepted
                raise

    def pushed_too_much(self):
        """After a refusal: what was pushed with what is refused."""
        allowed = self._pushed if self._did is None else self._did
        accepted = self.cluster.outcomes().accepted
        if accepted > allowed:
            return f"{accepted - allowed} push(es) of what was refused were accepted"
        if self.workers == 1 and accepted > 0:
            step = self.cluster.status().global_step
            if step > allowed:
                return f"the job is at step {step}, not {allowed}"
        return ""

    @contextlib.contextmanager
    def interrupted(self, line):
        left = line

        def on_line(frame, event, argument):
            nonlocal left
            if event == "line":
                left -= 1
                if left < 0:
                    sys.settrace(None)
                    raise KeyboardInterrupt
            return on_line

        def on_call(frame, event, argument):
            return on_line if frame.f_code.co_filename.startswith(_HOLDFAST) else None

        sys.settrace(on_call)
        try:
            yield
        finally:
            sys.settrace(None)


class Runs:
    """Runs scripts in forks. Each run under Holdfast has a ps of its own."""

    def __init__(self):
        torch.set_num_threads(1)
        # Collections in the children leave alone, and do not copy, what all of them share.
        gc.collect()
        gc.freeze()
        atexit.register(gc.unfreeze)  # some libraries complain about what is left

    def plain(self, script, variant, *, steps=STEPS):
        ends = [None] * variant.workers
        if variant.workers == 2:
            ends = socket.socketpair()

        def worker(rank):
            if variant.workers == 2:
                ends[1 - rank].close()
            ring = None if variant.workers == 1 else Ring(ends[rank], rank)
            return _outcome_of(script, PlainSide(variant, rank, steps, ring))

        try:
            return self._forked(worker, variant.workers, ends)
        finally:
            for end in ends:
                if end is not None:
                    end.close()

    def holdfast(self, script, variant, *, steps=STEPS):
        # A job that fails before all workers have connected keeps the others waiting.
        met = socket.socketpair()
        with LocalCluster(1, variant.workers) as ps, met[0], met[1]:

            def worker(rank):
                outcome, error = Outcome(), None
                cluster = holdfast.connect(**ps.task(rank))
                if variant.workers == 2:
                    met[rank].send(b".")
                    met[rank].recv(1)
                side = HoldfastSide(variant, rank, steps, cluster)
                try:
                    outcome = _outcome_of(script, side, raises=True)
                except Exception as raised:
                    error = raised
                    outcome.error = f"{type(error).__name__}: {error}"
                    outcome.told = isinstance(error, (holdfast.JobFailed, holdfast.Stopped))
                    outcome.trace = traceback.format_exc()
                    with contextlib.suppress(holdfast.Error):
                        outcome.pushed = side.pushed_too_much()
                # Tells the other worker; an error of the library would leave without a word.
                cluster._end("refused" if error is not None else "", 2000)
                return outcome

            return self._forked(worker, variant.workers)

    def _forked(self, worker, count, ends=()):
        children = []
        for rank in range(count):
            out, into = os.pipe()
            log = tempfile.TemporaryFile("w+b")  # noqa: SIM115
            pid = os.fork()
            if pid == 0:
                os.close(out)
                _run_child(worker, rank, into, log)
            os.close(into)
            children.append((pid, out, log))
        for end in ends:
            if end is not None:
                end.close()
        return [
            self._collected(pid, data, log)
            for (pid, _, log), data in zip(children, _read_all(children), strict=True)
        ]

    @staticmethod
    def _collected(pid, data, log):
        _, status = os.waitpid(pid, 0)
        outcome = Outcome(error=f"the process ended: {_reason_of(status)}")
        if data:
            outcome = pickle.loads(data)
        log.seek(0)
        outcome.log = log.read().decode(errors="replace")
        log.close()
        return outcome


def _read_all(children):
    """What each child has written. If one ends without a result, the others are killed."""
    results = {out: b"" for _, out, _ in children}
    with selectors.DefaultSelector() as selector:
        for pid, out, _ in children:
            selector.register(out, selectors.EVENT_READ, pid)
        while selector.get_map():
            for key, _ in selector.select():
                data = os.read(key.fd, 1 << 20)
                results[key.fd] += data
                if data:
                    continue
                selector.unregister(key.fd)
                os.close(key.fd)
                if not results[key.fd]:
                    for other in selector.get_map().values():
                        os.kill(other.data, signal.SIGKILL)
    return list(results.values())


def in_parallel():
    """A pool of two processes, each of which may have Runs."""
    return concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context("fork"))


def _reason_of(status):
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return "stuck" if number == signal.SIGALRM else f"signal {number}"
    return f"exit code {os.waitstatus_to_exitcode(status)}"


def _run_child(worker, rank, into, log):
    try:
        for stream in (1, 2):
            os.dup2(log.fileno(), stream)
        # torch makes its thread pool anew in a forked process, and not safely if two threads of
        # autograd are the first to use it.
        torch.set_num_threads(1)
        signal.alarm(LIMIT_SECONDS)
        faulthandler.dump_traceback_later(LIMIT_SECONDS - 2)
        outcome = worker(rank)
        with os.fdopen(into, "wb") as file:
            pickle.dump(outcome, file)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _outcome_of(script, side, *, raises=False):
    outcome = Outcome()
    try:
        script(side)
        outcome.last = values_of(side.model)
    except Exception as error:
        if raises:
            raise
        outcome.error = f"{type(error).__name__}: {error}"
        outcome.trace = traceback.format_exc()
    outcome.first = side.first
    return outcome


def difference(reference, got):
    """What differs between final values by more than rounding does; empty if nothing does."""
    if reference.last.keys() != got.last.keys():
        return f"other names: {sorted(got.last.keys() ^ reference.last.keys())}"
    worst = ""
    excess = 1.0
    for name, value in reference.last.items():
        if value.shape != got.last[name].shape:
            return f'"{name}" has another shape'
        if value.size == 0:
            continue
        if not np.isfinite(value).all():
            return f'"{name}" is not finite under PyTorch'
        first = reference.first.get(name)
        change = 0.0
        if first is not None and first.shape == value.shape:
            change = float(np.abs(value - first).max())
        # What was reset to 0 may be off by the rounding of what it was before.
        allowed = 1e-6 * float(np.abs(value).max()) + 1e-4 * change + 1e-8
        far = float(np.abs(value - got.last[name]).max())
        if not far <= allowed:
            ratio = far / allowed if allowed else float("inf")
            if not ratio <= excess:
                excess = ratio
                worst = (
                    f'"{name}" is {far:.3g} off; {allowed:.3g} is allowed, it changed {change:.3g}'
                )
    return worst
