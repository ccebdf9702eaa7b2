# SPDX-License-Identifier: Apache-2.0

"""Runs jobs with and without a slow worker: see slow_worker.sh."""

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile

ROUNDS = int(sys.argv[1])
SLOWDOWN = 3
STEP_MS_MAX = 20  # uniform at random, so 10 on average
STEPS = 300  # synchronous; twice as many asynchronous pushes

JOBS = {
    "synchronous, by step": ("consistency { synchronous {} }", STEPS),
    "synchronous, 1 backup, by ticket": (
        "consistency { synchronous { replicas_to_aggregate: 1 } } examples: BY_TICKET",
        2 * STEPS),
    "asynchronous": ("consistency { asynchronous {} }", 2 * STEPS),
    "asynchronous, bound 4": (
        "consistency { asynchronous { staleness_bound: 4 } }", 2 * STEPS),
}


def job_file(folder, consistency, steps):
    """The example with a different consistency, without evaluations during training."""
    path = os.path.join(folder, "job.textproto")
    with open("examples/fashion_mnist_softmax.textproto", encoding="utf-8") as source:
        lines = [line for line in source
                 if not line.startswith(("steps:", "consistency", "evaluation", "local"))]
    with open(path, "w", encoding="utf-8") as target:
        target.write("".join(lines) + f"steps: {steps}\n{consistency}\n")
    return path


def addresses(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    found = ["127.0.0.1:%d" % one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return found


def examples_per_second(consistency, steps, slow):
    with tempfile.TemporaryDirectory() as folder:
        ps, *workers = addresses(3)
        cluster = ["--ps_hosts=" + ps, "--worker_hosts=" + ",".join(workers)]
        job = "--job=" + job_file(folder, consistency, steps)
        result = os.path.join(folder, "result.json")
        commands = [["bazel-bin/ps_server/ps_server", "--task_index=0"]]
        for i in range(2):
            command = ["bazel-bin/tests/slow_worker/slow_worker", job, f"--task_index={i}"]
            if i == 0:
                command.append("--result_file=" + result)
            factor = SLOWDOWN if i == 1 and slow else 1
            command.append(f"--slow_step_ms_max={STEP_MS_MAX * factor}")
            commands.append(command)
        processes = [subprocess.Popen(command + cluster, stderr=subprocess.PIPE)
                     for command in commands]
        logs = [process.communicate()[1].decode() for process in processes]
        for process, log in zip(processes, logs):
            if process.returncode != 0:
                sys.exit(log)
        with open(result, encoding="utf-8") as file:
            return json.load(file)["examples_per_second"]


rates = {(name, slow): [] for name in JOBS for slow in (False, True)}
for _ in range(ROUNDS):
    for name, (consistency, steps) in JOBS.items():
        for slow in (False, True):
            rates[name, slow].append(examples_per_second(consistency, steps, slow))

share = (1 + 1 / SLOWDOWN) / 2
print(f"One of two workers at 1/{SLOWDOWN} of its speed: {share:.2f} of the total speed remains.")
for name in JOBS:
    both, one = (statistics.median(rates[name, slow]) for slow in (False, True))
    ratios = sorted(b / a for a, b in zip(rates[name, False], rates[name, True]))
    print(f"{name}: {both:.0f} examples/s, with a slow worker {one:.0f}: "
          f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}, "
          f"{ROUNDS} rounds)")
