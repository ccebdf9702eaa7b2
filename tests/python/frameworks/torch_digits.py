# SPDX-License-Identifier: Apache-2.0

"""A model and its examples, for tests that train it in several ways."""

import torch

from holdfast.examples import digits

EXAMPLES = 2000
SIZE = 100  # the batch size of a worker
WORKERS = 2

_images, _labels = digits.make(EXAMPLES, seed=1)
_x, _y = torch.from_numpy(_images) / 255, torch.from_numpy(_labels).long()

SGD = torch.optim.SGD
# Decays whose complement to 1 is exact in float32: torch rounds 1 - 0.99 from float64, but the
# cluster only has the declared float32 value of 0.99, so they would differ by 1e-6.
KEPT = 1 - 2.0**-7
BETAS = (1 - 2.0**-3, 1 - 2.0**-10)
OPTIMIZERS = {
    # Products with this rate are exact, so results are the same with and without fused
    # multiply-add.
    "exact": (SGD, {"lr": 0.125}),
    "exact momentum": (SGD, {"lr": 0.125, "momentum": 0.9}),
    "momentum": (SGD, {"lr": 0.05, "momentum": 0.9}),
    "nesterov": (SGD, {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 1e-3}),
    "adam": (torch.optim.Adam, {"lr": 0.003, "betas": BETAS}),
    "adamw": (torch.optim.AdamW, {"lr": 0.003, "betas": BETAS, "weight_decay": 0.05}),
    "adagrad": (torch.optim.Adagrad, {"lr": 0.01}),
    "rmsprop": (torch.optim.RMSprop, {"lr": 0.001, "alpha": KEPT, "momentum": 0.5}),
}


def make_model():
    """The same model each time."""
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Linear(400, 32), torch.nn.Tanh(), torch.nn.Linear(32, 10)
    )


def make_optimizer(model, name):
    kind, options = OPTIMIZERS[name]
    return kind(model.parameters(), **options)


def loss_of(model, rows):
    """The mean loss over the examples with these indices."""
    return torch.nn.functional.cross_entropy(model(_x[rows]), _y[rows])


def weighted_loss_of(model, rows):
    """The weighted mean loss over these examples, and the sum of the weights, which are 0.25 x the
    label."""
    losses = torch.nn.functional.cross_entropy(model(_x[rows]), _y[rows], reduction="none")
    weights = _y[rows] * 0.25
    return (weights * losses).sum() / weights.sum(), weights.sum()


def state_of(model):
    return {name: value.detach().clone() for name, value in model.named_parameters()}
