# SPDX-License-Identifier: Apache-2.0

"""Holdfast itself, measured with `holdfast bench`."""

import argparse
import json
import pathlib
import tempfile

import harness

PEER = "holdfast"

# The example job, its mode, and enough steps for some seconds.
JOBS = {
    "softmax_sync": ("softmax", "synchronous", 10000),
    "softmax_async": ("softmax", "asynchronous", 20000),
    "mlp_sync": ("mlp", "synchronous", 600),
    "mlp_async": ("mlp", "asynchronous", 1000),
}


def bench(program, words):
    """The results of `holdfast bench`, in the form of proto/benchmark.proto."""
    with tempfile.NamedTemporaryFile("r") as output, harness.Processes() as processes:
        command = [program, "bench", *words, f"--json={output.name}"]
        processes.wait(processes.run(command, {}))
        return [json.loads(line) for line in output]


def wire(program):
    names = {size: name for name, size in harness.SIZES.items()}
    for result in bench(program, [
            "wire", "--ops=push,pull", "--codecs=exact", "--shards=1", "--seconds=1.5",
            "--sizes=" + ",".join(map(str, names))]):
        harness.report_wire(PEER, result["op"], names[result["bytes"]], result["median_us"] / 1e6)


def control(program):
    for result in bench(program, ["wire", "--ops=control", "--shards=1", "--seconds=3"]):
        if result["bytes"]:
            harness.report(PEER, "control_p50", result["median_us"], "us")
            harness.report(PEER, "control_p99", result["p99_us"], "us")


def train(program, measure):
    example, mode, steps = JOBS[measure]
    job = pathlib.Path(__file__).parents[3] / f"examples/fashion_mnist_{example}.textproto"
    result, = bench(program, [
        "step", f"--jobs={job}", f"--modes={mode}", f"--steps={steps}", "--rounds=1", "--ps=1",
        f"--workers={harness.WORKERS}"])
    harness.report(PEER, measure, result["steps_per_second"], "steps/s")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True, help="path of the holdfast command")
    parser.add_argument("--measures", default="wire,control," + ",".join(JOBS))
    flags = parser.parse_args()
    for measure in flags.measures.split(","):
        if measure == "wire":
            wire(flags.program)
        elif measure == "control":
            control(flags.program)
        else:
            train(flags.program, measure)


if __name__ == "__main__":
    main()
