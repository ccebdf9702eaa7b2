# SPDX-License-Identifier: Apache-2.0

"""Trains a perceptron on images of ten classes, with NumPy alone.

    python -m holdfast.examples.mnist                    # 2 ps and 2 workers on this machine
    python -m holdfast.examples.mnist --data=fashion     # Fashion-MNIST, where it is installed

If ``TF_CONFIG`` is set, as by ``holdfast local`` or on Kubernetes, the process is that worker;
otherwise it starts ``holdfast local`` with itself as the workers.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import NoReturn

import numpy as np
import numpy.typing as npt

import holdfast
from holdfast.__main__ import run
from holdfast.examples import FASHION_MNIST, digits, fashion_mnist
from holdfast.job import Float32Array

_Labels = npt.NDArray[np.int64]


def load(data: str) -> tuple[Float32Array, _Labels, Float32Array, _Labels]:
    """Images [n, pixels], 0 to 1, and labels [n], 0 to 9: for training, and for testing."""
    if data == "fashion":
        return fashion_mnist()
    x, y = digits.make(6000, seed=1)
    test_x, test_y = digits.make(1000, seed=2)
    scale = np.float32(1 / 255)
    return x * scale, y.astype(np.int64), test_x * scale, test_y.astype(np.int64)


def _forward(x: Float32Array, values: list[Float32Array]) -> tuple[Float32Array, Float32Array]:
    """(hidden layer, probabilities of the classes)."""
    kernel, bias, out_kernel, out_bias = values
    hidden = np.maximum(x @ kernel + bias, 0)
    scores = hidden @ out_kernel + out_bias
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    return hidden, p / p.sum(axis=1, keepdims=True)


def train(args: argparse.Namespace) -> None:
    """One worker; the chief tests the model at the end."""
    x, y, test_x, test_y = load(args.data)
    size = args.batch_size
    with holdfast.connect() as cluster:
        cluster.declare(
            {
                "hidden/kernel": holdfast.Variable((x.shape[1], 64), holdfast.He()),
                "hidden/bias": holdfast.Variable(64),
                "softmax/kernel": holdfast.Variable((64, 10), holdfast.Glorot()),
                "softmax/bias": holdfast.Variable(10),
            },
            optimizer=holdfast.Momentum(learning_rate=args.learning_rate, momentum=0.9),
            steps=args.steps,
            seed=args.seed,
            checkpoints=holdfast.Checkpoints(every_steps=200),
        )
        for batch in cluster.batches():
            rows = holdfast.batch_indices(batch, len(x), size, seed=args.seed)
            values = list(cluster.pull().values())
            hidden, p = _forward(x[rows], values)
            loss = -np.log(p[np.arange(size), y[rows]] + 1e-9).mean()
            p[np.arange(size), y[rows]] -= 1
            p /= size
            back = (p @ values[2].T) * (hidden > 0)
            gradients = [x[rows].T @ back, back.sum(axis=0), hidden.T @ p, p.sum(axis=0)]
            cluster.push(gradients, loss=loss, examples=size)
        if cluster.is_chief:
            final = cluster.pull()
            _, p = _forward(test_x, list(final.values()))
            print(f"accuracy {np.mean(p.argmax(axis=1) == test_y):.4f} on {len(test_y)} images")
            print(f"digest {holdfast.digest(final)}")


def start(args: argparse.Namespace) -> NoReturn:
    """Replaces this process with a cluster on this machine, whose workers call ``train``."""
    flags = [f"--ps={args.ps}", f"--workers={args.workers}", "--on_failure=restart"]
    if args.run_dir:
        flags.append(f"--run_dir={args.run_dir}")
    worker = [sys.executable, "-m", "holdfast.examples.mnist", *sys.argv[1:]]
    run(["local", *flags, "--", *worker])


def main() -> None:
    """A worker, or the cluster with its workers."""
    parser = argparse.ArgumentParser(prog="python -m holdfast.examples.mnist")
    parser.add_argument(
        "--data",
        choices=["digits", "fashion"],
        default="digits",
        help="digits, which are drawn for the purpose (the default), or Fashion-MNIST of"
        " Debian's package dataset-fashion-mnist",
    )
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch_size", type=int, default=100, help="of each worker")
    parser.add_argument("--learning_rate", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    cluster = parser.add_argument_group("where TF_CONFIG is not set")
    cluster.add_argument("--ps", type=int, default=2)
    cluster.add_argument("--workers", type=int, default=2)
    cluster.add_argument("--run_dir", help="as for holdfast local")
    args = parser.parse_args()
    if args.data == "fashion" and not os.path.isdir(FASHION_MNIST):
        parser.error(
            f"--data=fashion: there is no {FASHION_MNIST}: install Debian's package"
            " dataset-fashion-mnist, or take --data=digits"
        )
    if "TF_CONFIG" in os.environ:
        train(args)
    else:
        start(args)


if __name__ == "__main__":
    main()
