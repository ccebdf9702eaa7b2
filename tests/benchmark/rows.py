#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rows of embedding tables: Holdfast, its peers and a limit, in one run.

    tests/benchmark/rows.py --holdfast=bazel-bin/cli/holdfast [--rounds=3] \\
        [--redis=VENV/bin/python] [--tensorflow=VENV/bin/python] \\
        [--torch=VENV/bin/python] [--ps_lite=PROGRAM] [--output=FILE]

All do the same work in turn, for several rounds, as in compare.py: each fills a table of --rows
rows, and then pushes and pulls the unique ids of batches that are drawn by Zipf's law
(peers/rows.py). Prints two tables in Markdown: the time per row in ns, and Holdfast's speed
relative to each peer in the same round.

A peer whose flag is not given is left out:

  --redis       a Python with redis, hiredis and numpy; redis-server (Debian's package)
                must be on the path. A push only stores values.
  --tensorflow  a Python with tensorflow
  --torch       a Python with torch and numpy, which work within one process, with one
                thread: EmbeddingBag, index_add_, index_select and numpy.unique
  --ps_lite     built by `PS_LITE_SOURCE=... peers/ps_lite_rows.py --build=FOLDER`
"""

import argparse
import pathlib
import signal
import sys
import tempfile

import compare

PEERS = pathlib.Path(__file__).parent / "peers"

# Columns: peer and heading.
COLUMNS = [
    ("holdfast", "Holdfast"),
    ("redis", "Redis, redis-py"),
    ("redis_packed", "Redis, packed by NumPy"),
    ("tensorflow", "TensorFlow"),
    ("ps_lite", "ps-lite"),
    ("in_process", "limit: PyTorch and NumPy in one process"),
]

# Rows: operation and heading. The last four count duplicates.
OPERATIONS = [
    ("push", "push"),
    ("pull", "pull"),
    ("pushpull", "push and pull"),
    ("assign", "unique ids"),
    ("sum", "sum of duplicates"),
    ("spread", "spread to duplicates"),
    ("batch", "all of a batch"),
]


def commands(flags):
    """The commands of a round, in order."""
    result = {}
    for length in flags.row_length.split(","):
        work = (f"--rows={flags.rows} --ids={flags.ids} --zipf={flags.zipf} "
                f"--row_length={length} --seconds={flags.seconds}")
        programs = [
            ("holdfast", flags.holdfast and sys.executable, f"--program={flags.holdfast}"),
            ("redis", flags.redis, ""),
            ("tensorflow", flags.tensorflow, ""),
            ("ps_lite", flags.ps_lite and sys.executable, f"--program={flags.ps_lite}"),
            ("torch", flags.torch, ""),
        ]
        for name, python, words in programs:
            if python:
                command = f"{python} {PEERS}/{name}_rows.py {words} {work}"
                result[f"{length} values, {name}"] = command.split()
    return result


def table(columns, lengths, values):
    """A table in Markdown; values(peer, measure) returns the values of a cell."""
    lines = ["| | " + " | ".join(heading for _, heading in columns) + " |",
             "|---" * (len(columns) + 1) + "|"]
    for length in lengths:
        for operation, heading in OPERATIONS:
            cells = [compare.cell(values(peer, f"{operation}_{length}")) for peer, _ in columns]
            if set(cells) != {"-"}:
                lines.append("| " + " | ".join([f"{heading}, {length} values", *cells]) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--holdfast", required=True, help="path of the holdfast command")
    for peer in ("redis", "tensorflow", "torch", "ps_lite"):
        parser.add_argument(f"--{peer}", default="")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--ids", type=int, default=65536)
    parser.add_argument("--zipf", type=float, default=1.05)
    parser.add_argument("--row_length", default="16,64", help="a list of row lengths")
    parser.add_argument("--seconds", type=float, default=1.5, help="time for each operation")
    parser.add_argument("--timeout", type=float, default=300, help="of one program, in seconds")
    parser.add_argument("--output", type=pathlib.Path, help="file for the JSON lines of each round")
    flags = parser.parse_args()
    # So that `finally` blocks run.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory() as folder:
        path = flags.output or pathlib.Path(folder) / "rows.jsonl"
        with open(path, "w", encoding="utf-8") as output:
            compare.measure(commands(flags), flags.rounds, flags.timeout, output)
        results = compare.Results(path)
    columns = [column for column in COLUMNS if results.has(column[0])]
    lengths = flags.row_length.split(",")
    print(f"ns per row, median of {flags.rounds} rounds (minimum to maximum):\n")
    print(table(columns, lengths, results.values))
    print("\nHoldfast's speed relative to each peer, by round:\n")
    # Less is better, because the values are times.
    print(table(columns[1:], lengths, lambda peer, name: results.ratios(peer, name, "us")))


if __name__ == "__main__":
    main()
