#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares two builds of Holdfast with `holdfast bench`, in pairs of runs.

    tests/benchmark/paired.py [--rounds=21] BEFORE AFTER VERB [flags of the verb]
    tests/benchmark/paired.py old/cli/holdfast bazel-bin/cli/holdfast wire --sizes=16,1MB --shards=1

BEFORE and AFTER are the `holdfast` programs of the two builds; each finds its own ps_server and
ps_worker beside it. A round runs the benchmark once with each build, every other round in the
opposite order, so that a machine that slows down over time favors neither. For each row and figure
of the benchmark, prints the median over rounds of AFTER / BEFORE, and the interval that contains
the true median with a confidence of at least 95 % (order statistics, no assumption on the
distribution). For times and CPU, ratios below 1 are better; for rates, ratios above 1.
"""
import argparse
import json
import math
import statistics
import subprocess
import sys

# Fields that identify a row, and fields that are compared.
KEYS = ("op", "codec", "bytes", "shards", "job", "mode", "ps", "workers", "row_length")
FIGURES = ("median_us", "p99_us", "cpu_us", "steps_per_second", "cpu_seconds_per_gb")


def run_benchmark(program, arguments):
    """{row: {figure: value}} of one run."""
    run = subprocess.run(
        [program, "bench", *arguments, "--json=-"], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, encoding="utf-8", check=False)
    if run.returncode != 0:
        sys.exit(f"{program} bench {' '.join(arguments)}: exit status {run.returncode}\n"
                 f"{run.stderr[-2000:]}")
    rows = {}
    for line in run.stdout.splitlines():
        result = json.loads(line)
        row = " ".join(f"{key}={result[key]}" for key in KEYS if key in result)
        rows[row] = {figure: result[figure] for figure in FIGURES if figure in result}
    return rows


def median_interval(values, confidence=0.95):
    """The narrowest interval (low, high) of order statistics that contains the median with at
    least `confidence`: P(low <= median <= high) by the binomial distribution. With fewer than six
    values, returns the extremes, whose confidence is lower."""
    ordered, n = sorted(values), len(values)
    rank, below = 0, 0.0  # P(fewer than rank + 1 values are below the median)
    while rank < n // 2:
        below += math.comb(n, rank) / 2**n
        if 1 - 2 * below < confidence:
            break
        rank += 1
    low = max(rank - 1, 0)
    return ordered[low], ordered[n - 1 - low]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--rounds", type=int, default=21)
    # Flags after the verb belong to the verb, even one named --rounds.
    parser.add_argument("verb", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    verb = arguments.verb
    if not verb:
        parser.error("name a verb of `holdfast bench`: wire, step or scale")
    ratios = {}  # (row, figure) -> [AFTER / BEFORE by round]
    for number in range(arguments.rounds):
        programs = [arguments.before, arguments.after]
        results = {}
        for program in programs if number % 2 == 0 else reversed(programs):
            results[program] = run_benchmark(program, verb)
        before, after = (results[program] for program in programs)
        for row in before:
            for figure, value in before[row].items():
                if value and figure in after.get(row, {}):
                    ratios.setdefault((row, figure), []).append(after[row][figure] / value)
        print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
    print(f"{'figure':<20} {'median':>7}  {'95 % interval':<16} row")
    for (row, figure), values in ratios.items():
        low, high = median_interval(values)
        print(f"{figure:<20} {statistics.median(values):7.3f}  {low:.3f} to {high:.3f}   {row}")


if __name__ == "__main__":
    main()
