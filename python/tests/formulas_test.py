# SPDX-License-Identifier: Apache-2.0

"""What a ps makes of gradients, against formulas.py in float32, bit for bit."""

import unittest

import numpy as np
from formulas import Trained
from local_cluster import LocalCluster

import holdfast

STEPS = 50

TORCH = {"epsilon_form": "epsilon_pytorch"}
RULES = {
    "sgd": holdfast.Sgd(learning_rate=0.1),
    "sgd_decay": holdfast.Sgd(learning_rate=0.1, weight_decay=0.03),
    "momentum": holdfast.Momentum(learning_rate=0.1, momentum=0.9),
    "nesterov": holdfast.Momentum(
        learning_rate=0.03, momentum=0.9, nesterov=True, weight_decay=0.01
    ),
    "adagrad": holdfast.Adagrad(learning_rate=0.1),
    "adagrad_from_0": holdfast.Adagrad(
        learning_rate=0.1, initial_accumulator_value=0, epsilon=1e-10, weight_decay=0.01
    ),
    "rmsprop": holdfast.RmsProp(learning_rate=0.01, momentum=0.7),
    "rmsprop_centered": holdfast.RmsProp(learning_rate=0.01, centered=True),
    "rmsprop_torch": holdfast.RmsProp(learning_rate=0.01, rho=0.99, epsilon=1e-8, **TORCH),
    "rmsprop_torch_all": holdfast.RmsProp(
        learning_rate=0.01, momentum=0.7, centered=True, weight_decay=0.01, **TORCH
    ),
    "adam": holdfast.Adam(learning_rate=0.01),
    "adam_torch": holdfast.Adam(learning_rate=0.01, **TORCH),
    "adam_torch_all": holdfast.Adam(
        learning_rate=0.02, beta1=0.5, beta2=0.75, epsilon=0.03, weight_decay=0.1, **TORCH
    ),
    "adamw": holdfast.AdamW(learning_rate=0.01),
    "adamw_all": holdfast.AdamW(
        learning_rate=0.02, beta1=0.0, beta2=0.75, epsilon=0.03, weight_decay=0.3
    ),
}
SCHEDULES = {
    "warmup": holdfast.LearningRateSchedule(warmup_steps=7, warmup_start_rate=0.01),
    "piecewise": holdfast.Piecewise(
        pieces=(
            holdfast.Piece(from_step=0, learning_rate=0.3),
            holdfast.Piece(from_step=20, learning_rate=0.07),
        ),
        warmup_steps=5,
    ),
    "exponential": holdfast.Exponential(decay_steps=49, decay_rate=0.6),
    "staircase": holdfast.Exponential(decay_steps=7, decay_rate=0.9, staircase=True),
    "polynomial": holdfast.Polynomial(
        decay_steps=40, end_learning_rate=0.02, power=1.7, warmup_steps=3, warmup_start_rate=0.1
    ),
    "rising": holdfast.Polynomial(decay_steps=20, end_learning_rate=0.9),
    "cycle": holdfast.Polynomial(decay_steps=12, cycle=True),
    "cosine": holdfast.Cosine(decay_steps=45, alpha=0.1),
}


class FormulasTest(unittest.TestCase):
    def test_bits(self):
        rules = dict(RULES)
        for name, schedule in SCHEDULES.items():
            rules[f"schedule_{name}"] = holdfast.Sgd(learning_rate=0.1, schedule=schedule)
        random = np.random.default_rng(1)
        # 37 elements: whole vectors in the ps, and a remainder.
        first = {name: random.standard_normal(37, np.float32) for name in rules}
        expected = {name: Trained(rule, first[name]) for name, rule in rules.items()}
        with LocalCluster() as ps, holdfast.connect(**ps.task()) as cluster:
            cluster.declare(
                {
                    name: holdfast.Variable(37, first[name], optimizer=rule)
                    for name, rule in rules.items()
                },
                optimizer=RULES["sgd"],
                steps=STEPS,
            )
            for _ in cluster.batches():
                gradients = {name: random.standard_normal(37, np.float32) for name in rules}
                cluster.push(gradients, loss=0.0, examples=1)
                values = cluster.pull()
                for name, gradient in gradients.items():
                    expected[name].step(gradient)
                    np.testing.assert_array_equal(
                        values[name].view(np.uint32), expected[name].value.view(np.uint32), name
                    )
            self.assertEqual(cluster.status().global_step, STEPS)


if __name__ == "__main__":
    unittest.main()
