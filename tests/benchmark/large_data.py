# SPDX-License-Identifier: Apache-2.0

"""Trains on data larger than the memory that a worker may take.

  bazel build //cli:holdfast //ps_server //worker:ps_worker
  python3 tests/benchmark/large_data.py bazel-bin/cli/holdfast --folder=/data --gigabytes=8

Writes a NumPy array of that size (uint8 images of 3072 bytes) and its labels to the folder, unless
these files exist, and trains a linear model in one pass over them with one ps and one worker. The
worker's memory is limited to --limit: its anonymous memory by RLIMIT_DATA, which ends it if it
allocates more; pages of mapped files are paged out (process_madvise with MADV_PAGEOUT) whenever
both together exceed the limit, as the kernel does for a control group. Prints the peaks of
anonymous and of total memory, steps per second, and the share of its time that the worker waited
for input. Needs root, for process_madvise.
"""

import argparse
import ctypes
import json
import os
import pathlib
import resource
import struct
import subprocess
import sys
import time

EXAMPLE = 3072
CLASSES = 10
BATCH = 1000
PROCESS_MADVISE = 440
MADV_PAGEOUT = 21

JOB = """
name: "large"
model {{
  sequential {{
    layers {{ dense {{ units: {classes} }} }}
    loss {{ softmax_cross_entropy {{}} }}
  }}
}}
data {{
  train {{ npy {{ inputs: "{folder}/large_x.npy" labels: "{folder}/large_y.npy" }} }}
  {shuffle}
}}
batch_size: {batch}
steps: {steps}
optimizer {{ learning_rate: 0.01 sgd {{}} }}
seed: 1
"""


def write_npy(path: pathlib.Path, shape: tuple[int, ...], pieces: int) -> None:
    """An array of uint8 whose values below 10 differ from row to row."""
    dimensions = ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "")
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({dimensions}), }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    size = shape[0] * (shape[1] if len(shape) > 1 else 1)
    values = bytes(i * 7 % 251 % CLASSES for i in range(1 << 20))
    with path.open("wb") as file:
        file.write(b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header.encode())
        while size > 0:
            file.write(values[: min(size, len(values))])
            size -= len(values)


def field(pid: int, name: str) -> int:
    """A field of /proc/PID/status, in bytes."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    return 0


def page_out(pid: int, path: pathlib.Path) -> None:
    """Pages out the pages of the file that the process has mapped."""
    pidfd = os.pidfd_open(pid)
    try:
        for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
            if not line.endswith(str(path)):
                continue
            begin, end = (int(word, 16) for word in line.split()[0].split("-"))
            while begin < end:
                size = min(end - begin, 1 << 30)
                vector = struct.pack("QQ", begin, size)
                libc = ctypes.CDLL(None, use_errno=True)
                done = libc.syscall(PROCESS_MADVISE, pidfd, vector, 1, MADV_PAGEOUT, 0)
                if done < 0:
                    raise OSError(ctypes.get_errno(), "process_madvise")
                begin += size
    finally:
        os.close(pidfd)


def worker_of(run: pathlib.Path) -> int | None:
    """The worker's process, or None until it exists."""
    for path in run.glob("worker-0.pid"):
        text = path.read_text().strip()
        return int(text) if text else None
    return None


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("holdfast")
    parser.add_argument("--folder", default="/tmp", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--gigabytes", default=8.0, type=float)
    parser.add_argument("--limit", default=1.0, type=float, help="in GB")
    parser.add_argument("--shuffle", default="shuffle: BLOCKS")
    parser.add_argument("--steps", type=int, help="default: one pass")
    options = parser.parse_args()
    examples = int(options.gigabytes * 1e9 / EXAMPLE)
    limit = int(options.limit * 1e9)
    inputs = options.folder / "large_x.npy"
    if not inputs.exists():
        write_npy(inputs, (examples, EXAMPLE), examples)
        write_npy(options.folder / "large_y.npy", (examples,), examples)
        os.sync()
    # Drops the files from the page cache, so that they are read from the disk.
    with inputs.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    run = options.folder / f"large_run_{os.getpid()}"
    job = options.folder / "large.textproto"
    job.write_text(
        JOB.format(
            classes=CLASSES,
            folder=options.folder,
            shuffle=options.shuffle,
            batch=BATCH,
            steps=options.steps or examples // BATCH,
        )
    )
    begin = time.monotonic()
    process = subprocess.Popen(
        [options.holdfast, "local", f"--job={job}", "--ps=1", "--workers=1", f"--run_dir={run}"],
        stdout=subprocess.DEVNULL,
    )
    peak_own = peak_all = limited = paged_out = 0
    while process.poll() is None:
        time.sleep(0.02)
        try:
            pid = worker_of(run)
            if pid is None:
                continue
            if limited != pid:
                resource.prlimit(pid, resource.RLIMIT_DATA, (limit, limit))
                limited = pid
            own = field(pid, "RssAnon")
            everything = own + field(pid, "RssFile")
            peak_own = max(peak_own, own)
            peak_all = max(peak_all, everything)
            if everything > 0.9 * limit:
                page_out(pid, inputs)
                paged_out += 1
        except OSError:  # The worker has ended meanwhile.
            continue
    seconds = time.monotonic() - begin
    if process.returncode != 0:
        sys.exit(f"the job failed; its logs are in {run}")
    result = json.loads((run / "result.json").read_text())
    print(f"{inputs.stat().st_size / 1e9:.1f} GB, {options.shuffle}, limit {limit / 1e9:.1f} GB")
    print(f"anonymous memory: {peak_own / 1e6:.0f} MB at most; with mapped pages "
          f"{peak_all / 1e6:.0f} MB; paged out {paged_out} times")
    print(f"{seconds:.1f} s in all")
    for key in ("steps_per_second", "examples_per_second", "by_worker", "train_loss"):
        if key in result:
            print(key, result[key])


if __name__ == "__main__":
    main()
