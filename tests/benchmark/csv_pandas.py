"""Rows per second of CPU time in reading CSV: a worker's reader beside pandas.read_csv.

  bazel build //common/data:csv_benchmark
  python3 -m venv /tmp/venv && /tmp/venv/bin/pip install pandas
  /tmp/venv/bin/python tests/benchmark/csv_pandas.py bazel-bin/common/data/csv_benchmark

Both read the same file of 200,000 rows, 13 columns, in one thread, in turn. Prints the
medians and the ratio of neighbours.
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


def holdfast_rate(benchmark: str) -> float:
    """Of the passes that the program makes."""
    command = [benchmark, "--benchmark_filter=BM_OpenCsv/1/", "--benchmark_format=json"]
    environment = {**os.environ, "CSV_BENCHMARK_FILE": PATH}
    done = subprocess.run(command, env=environment, capture_output=True, check=True)
    milliseconds = float(json.loads(done.stdout)["benchmarks"][0]["cpu_time"])
    return ROWS / milliseconds * 1e3


def pandas_rate() -> float:
    """The mean of three passes in this process."""
    begin = time.process_time()
    for _ in range(3):
        pandas.read_csv(PATH)
    return 3 * ROWS / (time.process_time() - begin)


def main() -> None:
    benchmark = sys.argv[1]
    holdfast_rate(benchmark)  # Makes the file.
    ours, theirs = [], []
    for _ in range(ROUNDS):
        ours.append(holdfast_rate(benchmark))
        theirs.append(pandas_rate())
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    for name, values in (("holdfast", ours), (f"pandas {pandas.__version__}", theirs)):
        print(
            f"{name}: {statistics.median(values):,.0f} rows/s "
            f"({min(values):,.0f} to {max(values):,.0f})"
        )
    print(f"ratio: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
