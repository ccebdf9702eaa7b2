# SPDX-License-Identifier: Apache-2.0

"""Rows per second in reading CSV: a worker's reader compared with pandas.read_csv.

  bazel build //common/data:csv_benchmark
  python3 -m venv /tmp/venv && /tmp/venv/bin/pip install pandas
  /tmp/venv/bin/python tests/benchmark/csv_pandas.py bazel-bin/common/data/csv_benchmark

Both read the same file of 200,000 rows and 13 columns, in one thread on the same core,
alternately. Prints the medians and the ratio of consecutive runs, by CPU time and by wall time;
wall time is meaningful only if nothing else runs.
"""

import json
import os
import statistics
import subprocess
import sys
import time

import pandas

ROUNDS = 11
ROWS = 200_000
PATH = os.path.join(os.environ.get("TMPDIR", "/tmp"), "csv_benchmark.csv")


def holdfast_rates(benchmark: str) -> tuple[float, float]:
    """The rates of the program's passes, by CPU time and by wall time."""
    command = [benchmark, "--benchmark_filter=BM_OpenCsv/1/", "--benchmark_format=json"]
    environment = {**os.environ, "CSV_BENCHMARK_FILE": PATH}
    done = subprocess.run(command, env=environment, capture_output=True, check=True)
    result = json.loads(done.stdout)["benchmarks"][0]
    return ROWS / float(result["cpu_time"]) * 1e3, ROWS / float(result["real_time"]) * 1e3


def pandas_rates() -> tuple[float, float]:
    """The mean rates of three passes in this process."""
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(3):
        pandas.read_csv(PATH)
    return (
        3 * ROWS / (time.process_time() - cpu),
        3 * ROWS / (time.perf_counter() - wall),
    )


def main() -> None:
    benchmark = sys.argv[1]
    # Both on the same core.
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    holdfast_rates(benchmark)  # Makes the file.
    ours, theirs = [], []
    for _ in range(ROUNDS):
        ours.append(holdfast_rates(benchmark))
        theirs.append(pandas_rates())
    print(f"load average: {os.getloadavg()[0]:.1f}")
    for clock, by in enumerate(("CPU time", "wall time")):
        print(f"by {by}:")
        rates = (
            ("holdfast", [rate[clock] for rate in ours]),
            (f"pandas {pandas.__version__}", [rate[clock] for rate in theirs]),
        )
        for name, values in rates:
            print(
                f"  {name}: {statistics.median(values):,.0f} rows/s "
                f"({min(values):,.0f} to {max(values):,.0f})"
            )
        ratios = [a[clock] / b[clock] for a, b in zip(ours, theirs, strict=True)]
        print(
            f"  ratio: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        )


if __name__ == "__main__":
    main()
