#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What an evaluator costs the job: steps per second with and without one.

    tests/benchmark/evaluating.py [--rounds=21] [--steps=12000] [--every=1000]
        [--modes=cores,nice] [--evaluator_cpus=LIST] [--training_cpus=LIST] [HOLDFAST]

A round trains the softmax example twice, alone and with an evaluator that evaluates each
checkpoint on the test set; every other round is in the opposite order. Both runs take the same
checkpoints, one every --every steps, and the chief evaluates only at the end, so that they differ
in nothing else. The evaluator is

  cores   on cores of its own, by default the last one that this process may use, while ps and
          workers have the others, also when they train alone
  nice    on the same cores as ps and workers, with `nice -n 19`

For each mode, prints the median over rounds of the ratio of steps per second, with / alone; the
interval that contains the true median with a confidence of at least 95 %; and the median number of
checkpoints that were evaluated in a run. A run whose evaluator reported fewer than two evaluations
is an error.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

from paired import median_interval

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
EXAMPLE = f"{ROOT}/examples/fashion_mnist_softmax.textproto"
MODES = ("cores", "nice")


def write_job(path, steps, every):
    with open(EXAMPLE, encoding="utf-8") as file:
        text = file.read()
    text, steps_set = re.subn(r"(?m)^steps: \d+$", f"steps: {steps}", text)
    text, evaluation_removed = re.subn(r"(?m)^evaluation \{.*\}$", "", text)
    assert steps_set == 1 and evaluation_removed == 1, EXAMPLE
    with open(path, "w", encoding="utf-8") as file:
        file.write(text + f"checkpoints {{ every_steps: {every} }}\n")


def default_cpus():
    """The cores of (ps and workers, evaluator), as arguments of `taskset -c`."""
    mine = sorted(os.sched_getaffinity(0))
    if len(mine) < 2:
        sys.exit("mode cores needs at least two cores; use --modes=nice")
    return ",".join(map(str, mine[:-1])), str(mine[-1])


class Evaluator:
    """The evaluator of a run that has begun; it leaves when the job is done."""

    def __init__(self, worker, run_dir, job, prefix):
        self.log = os.path.join(run_dir, "evaluator.log")
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [*prefix, worker, f"--job={job}", "--job_name=evaluator", "--task_index=0",
                 f"--cluster_spec={run_dir}/cluster.json",
                 f"--checkpoint_dir={run_dir}/checkpoints"],
                stdout=log, stderr=subprocess.STDOUT)

    def reports(self):
        code = self.process.wait(timeout=60)
        with open(self.log, encoding="utf-8") as log:
            text = log.read()
        reports = text.count(": test loss ")
        if code != 0 or reports < 2:
            sys.exit(f"the evaluator ended with {code} after {reports} evaluations\n{text[-2000:]}")
        return reports


def train(arguments, training_prefix, evaluator_prefix):
    """Returns (steps per second, evaluations that the evaluator reported). If `evaluator_prefix`
    is None, there is no evaluator."""
    with tempfile.TemporaryDirectory(prefix="holdfast-evaluating-") as folder:
        job = os.path.join(folder, "job.textproto")
        write_job(job, arguments.steps, arguments.every)
        run_dir = os.path.join(folder, "run")
        local = subprocess.Popen(
            [*training_prefix, arguments.holdfast, "local", f"--job={job}",
             f"--run_dir={run_dir}", "--status_port=none"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8")
        evaluator = None
        try:
            if evaluator_prefix is not None:
                while local.poll() is None and not os.path.exists(f"{run_dir}/cluster.json"):
                    time.sleep(0.01)
                worker = os.path.join(
                    os.path.dirname(arguments.holdfast), "..", "worker", "ps_worker")
                evaluator = Evaluator(worker, run_dir, job, evaluator_prefix)
            output, _ = local.communicate()
            if local.returncode != 0:
                sys.exit(f"exit status {local.returncode}\n{output[-2000:]}")
            reports = evaluator.reports() if evaluator is not None else 0
        finally:
            for process in (local, evaluator and evaluator.process):
                if process is not None and process.poll() is None:
                    process.terminate()
                    process.wait()
        with open(f"{run_dir}/result.json", encoding="utf-8") as file:
            return json.load(file)["steps_per_second"], reports


def prefixes(arguments, mode):
    """The words that precede the commands of (ps and workers, evaluator)."""
    if mode == "nice":
        return [], ["nice", "-n", "19"]
    training, evaluator = default_cpus()
    return (["taskset", "-c", arguments.training_cpus or training],
            ["taskset", "-c", arguments.evaluator_cpus or evaluator])


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("holdfast", nargs="?", default=f"{ROOT}/bazel-bin/cli/holdfast")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--steps", type=int, default=12000)
    parser.add_argument("--every", type=int, default=1000)
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--evaluator_cpus", default="")
    parser.add_argument("--training_cpus", default="")
    arguments = parser.parse_args()
    modes = arguments.modes.split(",")
    if unknown := set(modes) - set(MODES):
        parser.error(f"unknown modes: {', '.join(sorted(unknown))}")
    ratios = {mode: [] for mode in modes}
    evaluations = {mode: [] for mode in modes}
    for number in range(arguments.rounds):
        for mode in modes:
            training, evaluator = prefixes(arguments, mode)
            rates = {}
            for prefix in (None, evaluator) if number % 2 == 0 else (evaluator, None):
                rate, reports = train(arguments, training, prefix)
                rates[prefix is not None] = rate
                if prefix is not None:
                    evaluations[mode].append(reports)
            ratios[mode].append(rates[True] / rates[False])
        print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
    for mode, values in ratios.items():
        low, high = median_interval(values)
        print(f"{mode:<6} {statistics.median(values):.3f}  {low:.3f} to {high:.3f}  "
              f"{statistics.median(evaluations[mode]):.0f} evaluations")


if __name__ == "__main__":
    main()
