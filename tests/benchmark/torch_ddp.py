#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Steps per second of a PyTorch perceptron: holdfast.torch against DistributedDataParallel.

Two workers with one thread each train the 784-512-512-10 of examples/fashion_mnist_mlp.textproto
(669,706 parameters) with SGD and momentum on batches of 100: Holdfast with one ps, DDP over gloo.
Both read the same examples in the same way. Runs alternate; medians, and the median of the ratios
of consecutive runs, are printed.

    HOLDFAST_LIBRARY=... HOLDFAST_PS_SERVER=... PYTHONPATH=python:python/tests \\
        VENV/bin/python tests/benchmark/torch_ddp.py [--rounds=7] [--steps=1500]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import torch
from local_cluster import LocalCluster, unused_addresses

import holdfast
import holdfast.torch

WIDTHS = (784, 512, 512, 10)
BATCH = 100
EXAMPLES = 60000
WARM_UP = 100  # steps that are not measured
WORKERS = 2


def make_model():
    torch.manual_seed(1)
    layers = []
    for inputs, outputs in zip(WIDTHS, WIDTHS[1:], strict=False):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def make_data():
    x = torch.rand(EXAMPLES, WIDTHS[0])
    return torch.utils.data.TensorDataset(x, torch.randint(10, (EXAMPLES,)))


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9, fused=True)


def train(batches, model, optimizer, steps, step):
    """Trains, and prints the steps per second after the warm-up."""
    done = 0
    for x, y in batches:
        if done == WARM_UP:
            begin = time.perf_counter()
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        step(loss)
        done += 1
    assert done == steps, done
    print(json.dumps((steps - WARM_UP) / (time.perf_counter() - begin)))


def train_holdfast(steps):
    model = make_model()
    opt = holdfast.torch.Optimizer(
        model, torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9), steps=steps
    )
    train(opt.batches(make_data(), BATCH), model, opt, steps, opt.step)


def train_ddp(steps):
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    model = torch.nn.parallel.DistributedDataParallel(
        make_model(), broadcast_buffers=False, gradient_as_bucket_view=True, static_graph=True
    )
    optimizer = sgd(model)
    x, y = make_data().tensors

    def batches():
        for step in range(steps):
            batch = step * WORKERS + rank
            rows = torch.from_numpy(holdfast.batch_indices(batch, EXAMPLES, BATCH))
            yield x[rows], y[rows]

    train(batches(), model, optimizer, steps, lambda _: optimizer.step())
    torch.distributed.destroy_process_group()


def start(role, steps, environment):
    return subprocess.Popen(
        [sys.executable, __file__, f"--role={role}", f"--steps={steps}"],
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        stdout=subprocess.PIPE,
        text=True,
    )


def result_of(processes):
    rates = []
    for process in processes:
        output, _ = process.communicate(timeout=600)
        if process.returncode != 0:
            sys.exit(f"a worker has ended with {process.returncode}")
        rates.append(json.loads(output.splitlines()[-1]))
    return min(rates)


def run(role, steps):
    if role == "holdfast":
        with LocalCluster(1, WORKERS) as ps:
            tasks = [
                {"cluster": ps.spec, "task": {"type": "worker", "index": index}}
                for index in range(WORKERS)
            ]
            return result_of(
                [start(role, steps, {"TF_CONFIG": json.dumps(task)}) for task in tasks]
            )
    host, port = unused_addresses(1)[0].rsplit(":", 1)
    place = {"MASTER_ADDR": host, "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo"}
    return result_of(
        [
            start(role, steps, {**place, "RANK": str(rank), "WORLD_SIZE": str(WORKERS)})
            for rank in range(WORKERS)
        ]
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--role", choices=("holdfast", "ddp"), help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.role:
        torch.set_num_threads(1)
        {"holdfast": train_holdfast, "ddp": train_ddp}[flags.role](flags.steps)
        return
    rates = {"holdfast": [], "ddp": []}
    for number in range(flags.rounds):
        for role in sorted(rates, reverse=number % 2 == 1):
            rates[role].append(run(role, flags.steps))
            print(f"round {number + 1}: {role} {rates[role][-1]:.1f} steps/s", file=sys.stderr)
    ratios = [h / d for h, d in zip(rates["holdfast"], rates["ddp"], strict=True)]
    for role, figures in rates.items():
        print(
            f"{role:9} {statistics.median(figures):7.1f} steps/s"
            f" ({min(figures):.1f} to {max(figures):.1f})"
        )
    print(f"ratio     {statistics.median(ratios):7.3f} ({min(ratios):.3f} to {max(ratios):.3f})")


if __name__ == "__main__":
    main()
