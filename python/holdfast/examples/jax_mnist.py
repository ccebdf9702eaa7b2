# SPDX-License-Identifier: Apache-2.0

"""Trains a perceptron on images of digits with JAX, on a cluster.

    holdfast local -- python -m holdfast.examples.jax_mnist

``jax_mnist_single`` is the same script in one process; five lines differ.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import holdfast.jax
from holdfast.examples.mnist import load

STEPS = 500


def init(key: Any, sizes: list[int]) -> Any:
    """Layers from each size to the next (He et al. 2015)."""
    return [
        {
            "kernel": jax.random.normal(key, (inputs, outputs)) * (2 / inputs) ** 0.5,
            "bias": jnp.zeros(outputs),
        }
        for key, inputs, outputs in zip(
            jax.random.split(key, len(sizes) - 1), sizes[:-1], sizes[1:], strict=True
        )
    ]


def scores_of(params: Any, x: Any) -> Any:
    """The logits of the classes."""
    *hidden, last = params
    for layer in hidden:
        x = jax.nn.relu(x @ layer["kernel"] + layer["bias"])
    return x @ last["kernel"] + last["bias"]


def loss_of(params: Any, x: Any, y: Any) -> Any:
    """Mean cross-entropy."""
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(scores_of(params, x)), y[:, None], 1))


def main() -> None:
    """Trains and tests."""
    x, y, test_x, test_y = load("digits")
    params = init(jax.random.key(1), [x.shape[1], 64, 10])
    step = jax.jit(jax.value_and_grad(loss_of))
    trainer = holdfast.jax.Trainer(params, optimizer=holdfast.Sgd(learning_rate=0.5), steps=STEPS)
    for batch in trainer.batches(len(x), 100, seed=1):
        trainer.push(*step(trainer.params, x[batch], y[batch]))
    accuracy = np.mean(scores_of(trainer.params, test_x).argmax(axis=1) == test_y)
    print(f"accuracy {accuracy:.4f} on {len(test_y)} images")


if __name__ == "__main__":
    main()
