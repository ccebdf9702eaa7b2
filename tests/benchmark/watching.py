#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What it costs to watch a job: steps per second with and without monitoring.

    tests/benchmark/watching.py [--rounds=21] [--steps=12000] [HOLDFAST]

A round runs `holdfast bench step` on the softmax example twice, every other round in the opposite
order: once with `--status_port=none` and logs as text, and once with the status port, logs as
JSON, and a reader that requests once per second the metrics, like Prometheus, and everything that
the status page polls. Prints the median over rounds of watched / unwatched steps per second, and
the interval that contains the true median with a confidence of at least 95 %. A run in which the
reader got no answer is an error.
"""
import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import threading
import urllib.request

from paired import median_interval

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
MODES = ("synchronous", "asynchronous")
PATHS = ("metrics", "status.json", "events.json?after={event}", "history.json?after_step={step}")


class Reader(threading.Thread):
    """Requests all pages once per second until it is stopped."""

    def __init__(self, port):
        super().__init__()
        self.address = f"http://127.0.0.1:{port}/"
        self.stopped = threading.Event()
        self.reads = 0

    def run(self):
        event = step = 0
        while not self.stopped.wait(1):
            try:
                for path in PATHS:
                    url = self.address + path.format(event=event, step=step)
                    with urllib.request.urlopen(url, timeout=5) as answer:
                        text = answer.read()
                    if path.startswith("status"):
                        step = int(json.loads(text).get("global_step", 0))
                    elif path.startswith("events"):
                        for told in json.loads(text).get("events", []):
                            event = int(told["number"])
                self.reads += 1
            except OSError:
                continue  # not started yet, or already ended


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def steps_per_second(holdfast, mode, steps, local_flags):
    run = subprocess.run(
        [holdfast, "bench", "step", f"--jobs={ROOT}/examples/fashion_mnist_softmax.textproto",
         f"--modes={mode}", f"--steps={steps}", "--rounds=1", "--json=-",
         f"--local_flags={local_flags}"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", check=False)
    if run.returncode != 0:
        sys.exit(f"exit status {run.returncode}\n{run.stderr[-2000:]}")
    [line] = [line for line in run.stdout.splitlines() if line.startswith("{")]
    return json.loads(line)["steps_per_second"]


def watched(holdfast, mode, steps):
    port = free_port()
    reader = Reader(port)
    reader.start()
    try:
        logs = "--log_format=json"
        flags = f"--status_port={port} --ps_flags={logs} --worker_flags={logs}"
        rate = steps_per_second(holdfast, mode, steps, flags)
    finally:
        reader.stopped.set()
        reader.join()
    if reader.reads < 2:
        sys.exit(f"the pages were read {reader.reads} times: use more --steps")
    return rate


def unwatched(holdfast, mode, steps):
    return steps_per_second(holdfast, mode, steps, "--status_port=none")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("holdfast", nargs="?", default=f"{ROOT}/bazel-bin/cli/holdfast")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--steps", type=int, default=12000)
    arguments = parser.parse_args()
    ratios = {mode: [] for mode in MODES}
    for number in range(arguments.rounds):
        for mode in MODES:
            rates = {}
            for run in (watched, unwatched) if number % 2 == 0 else (unwatched, watched):
                rates[run] = run(arguments.holdfast, mode, arguments.steps)
            ratios[mode].append(rates[watched] / rates[unwatched])
        print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
    for mode, values in ratios.items():
        low, high = median_interval(values)
        print(f"{mode:<13} {statistics.median(values):.3f}  {low:.3f} to {high:.3f}")


if __name__ == "__main__":
    main()
