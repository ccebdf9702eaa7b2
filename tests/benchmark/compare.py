# SPDX-License-Identifier: Apache-2.0

"""Runs Holdfast, its peers and the machine's limits in turn, and reports.

tests/benchmark/compare.sh prepares all of them and calls this. There are several rounds, and in
each the programs that measure the same thing run one after another, under much the same conditions
of the machine; so the ratio of two within a round is more reliable than their rates.
"""

import argparse
import datetime
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys

FOLDER = pathlib.Path(__file__).parent

# Rows of the tables: measure, name, unit.
MEASURES = [
    ("push_16B", "push 16 B", "us"),
    ("pull_16B", "pull 16 B", "us"),
    ("push_1MB", "push 1 MB", "GB/s"),
    ("pull_1MB", "pull 1 MB", "GB/s"),
    ("push_64MB", "push 64 MB", "GB/s"),
    ("pull_64MB", "pull 64 MB", "GB/s"),
    ("softmax_sync", "softmax, synchronous", "steps/s"),
    ("softmax_async", "softmax, asynchronous", "steps/s"),
    ("mlp_sync", "MLP, synchronous", "steps/s"),
    ("mlp_async", "MLP, asynchronous", "steps/s"),
    ("control_p50", "control call under load, median", "us"),
    ("control_p99", "control call under load, 99th percentile", "us"),
]

# Columns. Peers that have not been measured are left out.
PEERS = {
    "holdfast": "Holdfast",
    "tensorflow": "TensorFlow",
    "mxnet": "MXNet",
    "ps_lite": "ps-lite",
    "pytorch_ddp": "PyTorch DDP",
    "raw_grpc": "limit: raw gRPC",
}

LIMITS = [
    ("memory", "memcpy_1", "memcpy, 1 thread"),
    ("memory", "memcpy_2", "2 threads"),
    ("memory", "triad_1", "STREAM triad, 1 thread"),
    ("memory", "triad_2", "2 threads"),
    ("iperf3", "tcp", "iperf3 over loopback"),
]

# The marks in --document around the report.
BEGIN = "<!-- compare.sh: begin -->\n"
END = "<!-- compare.sh: end -->\n"


def run(words, timeout):
    """Runs a program in its own process group. Returns (measurements, error)."""
    process = subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, errors="replace", start_new_session=True)
    error = None
    try:
        output, errors = process.communicate(timeout=timeout)
        if process.returncode != 0:
            error = "\n".join(errors.strip().splitlines()[-15:]) or f"exit {process.returncode}"
    except subprocess.TimeoutExpired as expired:
        output = (expired.stdout or b"").decode(errors="replace")
        error = f"not done after {timeout} s"
    finally:
        # Processes that it has started die with it (peers/harness.py).
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
    lines = [line for line in output.splitlines() if line.startswith('{"peer"')]
    return [json.loads(line) for line in lines], error


def measure(commands, rounds, timeout, output):
    """Writes one line for each measurement to the file `output`."""
    for number in range(rounds):
        for label, words in commands.items():
            before = os.getloadavg()[0]
            print(f"round {number + 1} of {rounds}: {label}", file=sys.stderr, flush=True)
            rows, error = run(words, timeout)
            for row in rows:
                row.update(round=number, load_before=before)
                output.write(json.dumps(row) + "\n")
            if error:
                print(f"{label}: {error}", file=sys.stderr, flush=True)
                output.write(json.dumps({"run": label, "round": number, "error": error}) + "\n")
            output.flush()


class Results:
    """The values measured in all rounds, by peer and measure."""

    def __init__(self, path):
        self._values = {}
        for line in path.read_text().splitlines():
            row = json.loads(line)
            if "value" not in row:
                continue
            # For a peer without a store, an echo counts as both push and pull.
            echo = row["measure"] == "echo_16B"
            for name in ["push_16B", "pull_16B"] if echo else [row["measure"]]:
                self._values.setdefault((row["peer"], name), {})[row["round"]] = row["value"]

    def has(self, peer):
        return any(key[0] == peer for key in self._values)

    def values(self, peer, name):
        return list(self._values.get((peer, name), {}).values())

    def ratios(self, peer, name, unit):
        """Holdfast's speed relative to a peer, in each round that has both."""
        ours = self._values.get(("holdfast", name), {})
        theirs = self._values.get((peer, name), {})
        both = [(ours[key], theirs[key]) for key in ours if key in theirs]
        return [b / a if unit == "us" else a / b for a, b in both]


def number(value):
    """Formats a number with three significant digits: 0.83, 12.6, 1,076."""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"


def cell(values):
    if not values:
        return "-"
    median = number(statistics.median(values))
    if len(values) == 1:
        return median
    return f"{median} ({number(min(values))} to {number(max(values))})"


def table(peers, measures, values):
    """A table in Markdown; values(peer, measure, unit) returns the values of a cell."""
    rows = [(heading, [cell(values(peer, name, unit)) for peer in peers])
            for name, heading, unit in measures]
    rows = [(heading, cells) for heading, cells in rows if set(cells) != {"-"}]
    if not rows:
        return ""
    kept = [i for i in range(len(peers)) if any(cells[i] != "-" for _, cells in rows)]
    lines = ["| | " + " | ".join(PEERS[peers[i]] for i in kept) + " |",
             "|---" * (len(kept) + 1) + "|"]
    lines += ["| " + " | ".join([heading, *(cells[i] for i in kept)]) + " |"
              for heading, cells in rows]
    return "\n".join(lines)


def report(results, rounds):
    """The report in Markdown."""
    peers = list(PEERS)
    rates = [(name, f"{heading}, {unit}", unit) for name, heading, unit in MEASURES]
    parts = [f"Median of {rounds} rounds (minimum to maximum), {datetime.date.today()}:",
             table(peers, rates, lambda peer, name, _: results.values(peer, name))]
    if results.has("holdfast"):
        parts += ["Holdfast's speed relative to each peer, by round:",
                  table(peers[1:], MEASURES, results.ratios)]
    limits = [f"{heading} {cell(results.values(peer, name))}"
              for peer, name, heading in LIMITS if results.values(peer, name)]
    if limits:
        parts.append("This machine's limits, GB/s: " + "; ".join(limits) + ".")
    return "\n\n".join(part for part in parts if part) + "\n"


def insert(text, document):
    """Replaces the text between the two marks in `document`."""
    content = document.read_text()
    before, begin, rest = content.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{document}: no lines {BEGIN.strip()} and {END.strip()}")
    document.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=120, help="timeout of one run, in seconds")
    parser.add_argument("--output", type=pathlib.Path, required=True,
                        help="file of JSON lines; without --run, only reports on it")
    parser.add_argument("--document", type=pathlib.Path,
                        help="Markdown file into which the report is inserted, between two marks")
    parser.add_argument("--run", action="append", default=[], metavar="LABEL=COMMAND",
                        help="a program that prints measurements, with its arguments")
    flags = parser.parse_args()
    # So that `finally` blocks run.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if flags.run:
        commands = {}
        for words in flags.run:
            label, _, command = words.partition("=")
            commands[label] = command.split()
        with open(flags.output, "w", encoding="utf-8") as output:
            measure(commands, flags.rounds, flags.timeout, output)
    text = report(Results(flags.output), flags.rounds)
    print(text, end="")
    if flags.document:
        insert(text, flags.document)


if __name__ == "__main__":
    main()
