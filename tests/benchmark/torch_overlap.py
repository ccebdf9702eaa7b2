#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How much of a push overlaps with the backward pass of a PyTorch model.

One worker and one ps at the two ends of a link between network namespaces that is limited by `tc
tbf`. The rate is chosen so that a push takes as long as the backward pass. Prints the medians of
backward, push, pull and step, and step / (backward + push + pull); push and pull are measured
separately, without overlap. Needs root, for the namespaces.

    HOLDFAST_LIBRARY=... HOLDFAST_PS_SERVER=... PYTHONPATH=python:python/tests \\
        VENV/bin/python tests/benchmark/torch_overlap.py [--trace=/tmp/overlap.json]
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch
from local_cluster import PS_SERVER

import holdfast
import holdfast.torch

LAYERS, WIDTH, BATCH = 8, 1024, 512
STEPS, WARM_UP = 10, 2
PS, WORKER = "10.231.77.1", "10.231.77.2"


def make_model():
    torch.manual_seed(1)
    layers = []
    for _ in range(LAYERS):
        layers += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers)


def work(overlap, trace):
    """Trains, and prints the seconds of the parts of each step."""
    torch.set_num_threads(1)
    model = make_model()
    # The namespaces share the kernel, so shared memory would bypass the link.
    with holdfast.connect(
        insecure=True, trace=trace, connect_timeout=30, same_host="off"
    ) as cluster:
        opt = holdfast.torch.Optimizer(
            model,
            torch.optim.SGD(model.parameters(), lr=0.001),
            steps=STEPS,
            cluster=cluster,
            overlap=overlap,
        )
        x = torch.randn(BATCH, WIDTH)
        parts = {"forward": [], "backward": [], "step": []}
        for _ in opt.batches(range(BATCH), BATCH):
            opt.zero_grad()
            begin = time.perf_counter()
            loss = model(x).square().mean()
            forward = time.perf_counter()
            loss.backward()
            backward = time.perf_counter()
            opt.step(loss)
            step = time.perf_counter()
            parts["forward"].append(forward - begin)
            parts["backward"].append(backward - forward)
            parts["step"].append(step - backward)
    print(json.dumps({name: statistics.median(v[WARM_UP:]) for name, v in parts.items()}))


def run(*words):
    subprocess.run(words, check=True)


@contextlib.contextmanager
def link(name):
    """Two namespaces, NAME-ps and NAME-worker, joined by a link."""
    ps, worker = f"{name}-ps", f"{name}-worker"
    try:
        for space in (ps, worker):
            run("ip", "netns", "add", space)
            run("ip", "-n", space, "link", "set", "lo", "up")
        run("ip", "link", "add", "v0", "netns", ps, "type", "veth", "peer", "v0", "netns", worker)
        for space, address in ((ps, PS), (worker, WORKER)):
            run("ip", "-n", space, "address", "add", f"{address}/24", "dev", "v0")
            run("ip", "-n", space, "link", "set", "v0", "up")
        yield ps, worker
    finally:
        for space in (ps, worker):
            subprocess.run(["ip", "netns", "delete", space], check=False)


def limit(space, megabytes):
    """Limits a namespace's outgoing traffic to `megabytes` MB/s."""
    run(
        "ip", "netns", "exec", space, "tc", "qdisc", "replace", "dev", "v0", "root", "tbf",
        "rate", f"{8 * megabytes:.3f}mbit", "burst", "256kb", "latency", "400ms",
    )  # fmt: skip


def measure(spaces, overlap, trace=None):
    ps, worker = spaces
    spec = {"ps": [f"{PS}:4000"], "worker": [f"{WORKER}:4001"]}
    with tempfile.TemporaryDirectory() as folder, open(f"{folder}/log", "wb") as log:
        daemon = subprocess.Popen(
            [
                "ip", "netns", "exec", ps, PS_SERVER, f"--cluster_spec={json.dumps(spec)}",
                "--task_index=0", f"--checkpoint_dir={folder}/checkpoints", "--insecure",
            ],
            stdout=log,
            stderr=log,
        )  # fmt: skip
        try:
            done = subprocess.run(
                [
                    "ip", "netns", "exec", worker, sys.executable, __file__, "--work",
                    *(["--overlap"] if overlap else []), *([f"--trace={trace}"] if trace else []),
                ],
                env={
                    **os.environ,
                    "OMP_NUM_THREADS": "1",
                    "TF_CONFIG": json.dumps({"cluster": spec, "task": {"type": "worker", "index": 0}}),
                },
                stdout=subprocess.PIPE, text=True, check=True, timeout=300,
            )  # fmt: skip
        finally:
            daemon.kill()
            daemon.wait()
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace", help="file for the trace of the run with overlap")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--overlap", action="store_true", help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.work:
        work(flags.overlap, flags.trace)
        return
    size = sum(4 * p.numel() for p in make_model().parameters()) / 1e6
    with link("holdfast-overlap") as spaces:
        backward = measure(spaces, False)["backward"]
        rate = size / backward
        print(f"gradient {size:.1f} MB, backward {backward:.3f} s, link {rate:.1f} MB/s")
        for space in spaces:
            limit(space, rate)
        apart = measure(spaces, False)
        with tempfile.TemporaryDirectory() as folder:
            trace = flags.trace or f"{folder}/trace.json"
            together = measure(spaces, True, trace)
            with open(trace, encoding="utf-8") as file:
                facts = json.load(file)["otherData"]
    # Without overlap, a step is push and pull, of the same size and over the same link.
    serial = apart["backward"] + apart["step"]
    overlapped = together["backward"] + together["step"]
    for name, parts in (("apart", apart), ("overlapped", together)):
        print(
            f"{name:10} forward {parts['forward']:.3f} s, backward {parts['backward']:.3f} s, "
            f"push and pull after it {parts['step']:.3f} s"
        )
    print(f"ratio of (backward + push + pull): {overlapped / serial:.3f}")
    print("share of calls hidden behind computation, by the trace: "
          f"{facts['communication_hidden']:.3f}")


if __name__ == "__main__":
    main()
