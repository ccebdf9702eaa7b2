# SPDX-License-Identifier: Apache-2.0

"""A perceptron in JAX and its update rules, for tests."""

import jax
import jax.numpy as jnp
import numpy as np

INPUTS, UNITS, CLASSES = 20, 64, 10


def examples(count):
    """Random (x, y)."""
    random = np.random.default_rng(3)
    x = random.standard_normal((count, INPUTS), np.float32)
    teacher = random.standard_normal((INPUTS, CLASSES), np.float32)
    return x, (x @ teacher).argmax(axis=1)


def perceptron():
    keys = jax.random.split(jax.random.key(1))
    return {
        "hidden": {
            "kernel": jax.random.normal(keys[0], (INPUTS, UNITS)) * 0.3,
            "bias": jnp.zeros(UNITS),
        },
        "out": {
            "kernel": jax.random.normal(keys[1], (UNITS, CLASSES)) * 0.2,
            "bias": jnp.zeros(CLASSES),
        },
    }


def loss_of(params, x, y):
    hidden = jax.nn.relu(x @ params["hidden"]["kernel"] + params["hidden"]["bias"])
    scores = hidden @ params["out"]["kernel"] + params["out"]["bias"]
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(scores), y[:, None], axis=1))


# Updates in the form of optax: (slots, gradient, number of the step from 1) -> (slots, change).


def sgd(slots, g, t):
    return slots, -0.1 * g


def momentum(slots, g, t):
    (trace,) = slots
    trace = g + 0.9 * trace
    return (trace,), -0.1 * trace


def adam(slots, g, t):
    m, v = slots
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    m_hat = m / (1 - 0.9**t)
    v_hat = v / (1 - 0.999**t)
    return (m, v), -0.01 * m_hat / (jnp.sqrt(v_hat) + 1e-8)


# The update, its slots, and Holdfast's equivalent.
RULES = {
    "sgd": (sgd, 0, "holdfast.Sgd(learning_rate=0.1)"),
    "momentum": (momentum, 1, "holdfast.Momentum(learning_rate=0.1, momentum=0.9)"),
    "adam": (adam, 2, 'holdfast.Adam(learning_rate=0.01, epsilon_form="epsilon_pytorch")'),
}


def train_alone(rule, x, y, batches, accumulate):
    """The parameters before the first step and after each step, trained in one process.

    batches: the rows of each step, which are divided into `accumulate` equal parts, whose
    gradients are averaged.
    """
    update, num_slots, _ = RULES[rule]
    gradient = jax.jit(jax.grad(loss_of))
    params, structure = jax.tree.flatten(perceptron())
    slots = [tuple(jnp.zeros_like(leaf) for _ in range(num_slots)) for leaf in params]
    history = [structure.unflatten(params)]
    for t, rows in enumerate(batches, start=1):
        parts = [
            jax.tree.leaves(gradient(history[-1], x[part], y[part]))
            for part in np.split(rows, accumulate)
        ]
        for i, of_parts in enumerate(zip(*parts, strict=True)):
            slots[i], change = update(slots[i], sum(of_parts) / accumulate, t)
            params[i] = params[i] + change
        history.append(structure.unflatten(params))
    return history
