# SPDX-License-Identifier: Apache-2.0

"""Code shared by the programs of this folder: processes, measuring, the data.

A peer's program starts the processes of its cluster on this machine, each of which is the same
program with --role, and prints one JSON line for each measurement:

    {"peer": "tensorflow", "measure": "softmax_sync", "value": 206.1, "unit": "steps/s"}

The work is the same for all: 1 ps and 2 workers, batches of 100 examples, models
and learning rates as in examples/fashion_mnist_{softmax,mlp}.textproto, one computing thread per
worker.
"""

import contextlib
import ctypes
import gzip
import json
import mmap
import os
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

BATCH = 100
WORKERS = 2

# Widths of the layers, learning rate, momentum.
MODELS = {
    "softmax": ([784, 10], 0.1, 0.0),
    "mlp": ([784, 512, 512, 10], 0.03, 0.9),
}

# Sizes of a variable in the wire measurements, in bytes.
SIZES = {"16B": 16, "1MB": 1 << 20, "64MB": 64 << 20}

# A rate is measured over SECONDS, which begin when each worker has made WARM_UP_STEPS steps and
# WARM_UP_SECONDS have passed since the first step.
SECONDS = 4.0
WARM_UP_STEPS = 50
WARM_UP_SECONDS = 1.5

_WORDS = 8  # The size of a worker's counter in bytes.


def report(peer, measure, value, unit):
    """Prints one measurement."""
    line = {"peer": peer, "measure": measure, "value": value, "unit": unit}
    print(json.dumps(line), flush=True)


def report_wire(peer, operation, name, seconds):
    """Prints the result of pushes or pulls of SIZES[name] bytes."""
    if SIZES[name] < 1000:
        report(peer, f"{operation}_{name}", seconds * 1e6, "us")
    else:
        report(peer, f"{operation}_{name}", SIZES[name] / seconds / 1e9, "GB/s")


def median_seconds(operation, seconds=1.5, least=10):
    """The median time of calls of `operation`, after a warm-up of a quarter of the time."""
    times = []
    begin = time.perf_counter()
    while True:
        before = time.perf_counter()
        operation()
        after = time.perf_counter()
        if after - begin > seconds / 4:
            times.append(after - before)
        if after - begin > seconds and len(times) >= least:
            return statistics.median(times)


def free_port():
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return listener.getsockname()[1]


def _die_with_parent():
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


class Processes(contextlib.AbstractContextManager):
    """Processes that are killed whenever the block is left."""

    def __init__(self):
        self._processes = []
        self._errors = tempfile.TemporaryFile()
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))

    def start(self, role, index=0, environment=None, **flags):
        """Starts this program as `role`; it prints measurements to our standard output."""
        words = [sys.executable, sys.argv[0], f"--role={role}", f"--index={index}"]
        words += [f"--{name}={value}" for name, value in flags.items()]
        return self.run(words, environment or {})

    def run(self, words, environment, stdout=None):
        """Starts any program."""
        process = subprocess.Popen(
            words,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=self._errors,  # Frameworks print a lot at each start.
            preexec_fn=_die_with_parent)
        self._processes.append(process)
        return process

    def check(self):
        """Raises an error if a process has failed, and shows the stderr of all."""
        for process in self._processes:
            if process.poll():
                self._errors.seek(0)
                sys.stderr.write(self._errors.read().decode(errors="replace"))
                raise RuntimeError(f"{process.args} has ended with {process.returncode}")

    def wait(self, process):
        """Waits until a process exits with 0; raises an error if any process fails."""
        while process.poll() is None:
            self.check()
            time.sleep(0.05)
        self.check()

    def __exit__(self, *_):
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()


class Steps:
    """The step counts of all workers, in a file that each process maps."""

    def __init__(self, path):
        with open(path, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), WORKERS * _WORDS)

    def add(self, worker):
        struct.pack_into("q", self._map, worker * _WORDS, self.get(worker) + 1)

    def get(self, worker):
        return struct.unpack_from("q", self._map, worker * _WORDS)[0]

    def all(self):
        return [self.get(worker) for worker in range(WORKERS)]


@contextlib.contextmanager
def steps_file():
    """The path of an empty file for Steps."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(bytes(WORKERS * _WORDS))
        file.flush()
        yield file.name


def report_training(peer, measure, processes, path):
    """Measures workers that train until they are killed, and count steps in `path`.

    In synchronous training, a step is made by all workers together; in asynchronous training, each
    worker's update is a step.
    """
    steps = Steps(path)
    while min(steps.all()) == 0:
        processes.check()
        time.sleep(0.05)
    time.sleep(WARM_UP_SECONDS)
    while min(steps.all()) < WARM_UP_STEPS:
        processes.check()
        time.sleep(0.05)
    before, begin = steps.all(), time.perf_counter()
    time.sleep(SECONDS)
    after, end = steps.all(), time.perf_counter()
    processes.check()
    counts = [last - first for first, last in zip(before, after)]
    count = sum(counts) if measure.endswith("_async") else counts[0]
    report(peer, measure, count / (end - begin), "steps/s")


def batches(worker):
    """Endless batches (images, labels) of Fashion-MNIST: [BATCH, 784] from 0 to 1, [BATCH]."""
    import numpy as np
    folder = "/usr/share/datasets/fashion-mnist/"
    with gzip.open(folder + "train-images-idx3-ubyte.gz") as file:
        images = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 784)
    with gzip.open(folder + "train-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8).astype(np.int32)
    images = images.astype(np.float32) / np.float32(255)
    random = np.random.RandomState(worker)
    while True:
        order = random.permutation(len(images))
        for begin in range(0, len(order), BATCH):
            rows = order[begin:begin + BATCH]
            yield images[rows], labels[rows]
