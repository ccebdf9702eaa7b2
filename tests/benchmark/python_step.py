# SPDX-License-Identifier: Apache-2.0

"""What a step costs in Python compared with C++: CPU time of the worker's process.

One worker and one ps; variables of 1000 elements, precomputed gradients. The C++ worker
(client_step.cc) and Python alternate, and the medians are compared. With --fresh, each gradient is
a new array in each step, like the results of NumPy expressions.

    bazel build //tests/benchmark:client_step //client/c_api:libholdfast.so //ps_server
    HOLDFAST_LIBRARY=bazel-bin/client/c_api/libholdfast.so \\
        HOLDFAST_PS_SERVER=bazel-bin/ps_server/ps_server PYTHONPATH=python \\
        /usr/bin/python3 tests/benchmark/python_step.py
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../python/tests"))

import numpy as np
from local_cluster import LocalCluster

import holdfast
from holdfast import job


def variables(count):
    return {f"v{i}": holdfast.Variable(1000) for i in range(count)}


def run_cpp(program, count, steps):
    optimizer = holdfast.Sgd(learning_rate=0.1)
    described = job.Job(
        optimizers=(optimizer,), consistency=holdfast.Synchronous(), total_steps=steps
    )
    text = job.declaration_text(variables(count), described)
    with LocalCluster(1) as ps:
        done = subprocess.run(
            [program, json.dumps(ps.spec), text], check=True, capture_output=True, text=True
        )
    return float(done.stdout)


def run_python(count, steps, fresh):
    """Runs in a separate process, because the CPU time of the whole process is measured."""
    with LocalCluster(1) as ps:
        worker = [sys.executable, __file__, f"--steps={steps}", f"--worker={count}"]
        task = {"cluster": ps.spec, "task": {"type": "worker", "index": 0}}
        done = subprocess.run(
            [*worker, "--fresh"] if fresh else worker,
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "TF_CONFIG": json.dumps(task)},
        )
    return float(done.stdout)


def work(count, steps, fresh):
    with holdfast.connect() as cluster:
        cluster.declare(
            variables(count), optimizer=holdfast.Sgd(learning_rate=0.1), steps=steps
        )
        gradients = {name: np.zeros(1000, np.float32) for name in variables(count)}
        not_ours = 0.0
        before = time.process_time()
        for _ in cluster.batches():
            cluster.pull()
            if fresh:
                begin = time.process_time()
                gradients = {name: value.copy() for name, value in gradients.items()}
                not_ours += time.process_time() - begin
            cluster.push(gradients, loss=0.0, examples=1)
        print(1e6 * (time.process_time() - before - not_ours) / steps)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--program", default="bazel-bin/tests/benchmark/client_step")
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--worker", type=int, default=0, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.worker:
        work(flags.worker, flags.steps, flags.fresh)
        return
    for count in (1, 100):
        cpp, python = [], []
        for _ in range(flags.repeats):
            cpp.append(run_cpp(flags.program, count, flags.steps))
            python.append(run_python(count, flags.steps, flags.fresh))
        cost = statistics.median(python) - statistics.median(cpp)
        print(
            f"{count} variables: C++ {statistics.median(cpp):.1f} us per step "
            f"({min(cpp):.1f} to {max(cpp):.1f}), Python {statistics.median(python):.1f} "
            f"({min(python):.1f} to {max(python):.1f}): {cost:.1f} us more",
            flush=True,
        )


if __name__ == "__main__":
    main()
