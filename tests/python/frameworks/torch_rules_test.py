# SPDX-License-Identifier: Apache-2.0

"""torch.optim's optimizers and schedulers, and the rules and schedules that they are converted
to."""

import unittest

import numpy as np
import torch
from formulas import Trained, as_declared
from torch.optim import lr_scheduler

import holdfast
from holdfast.rates import rate_at
from holdfast.torch.rules import rules_of

STEPS = 50
SHAPE = (7, 5)


def parameter(dtype=torch.float64):
    return torch.nn.Parameter(torch.zeros(SHAPE, dtype=dtype))


SGD, ADAM, ADAMW = torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW
ADAGRAD, RMSPROP = torch.optim.Adagrad, torch.optim.RMSprop
OPTIMIZERS = [
    (SGD, {"lr": 0.1}),
    (SGD, {"lr": 0.1, "weight_decay": 0.03}),
    (SGD, {"lr": 0.1, "dampening": 0.5}),  # without momentum, torch does not use it
    (SGD, {"lr": 0.1, "momentum": 0.9}),
    (SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.03}),
    (SGD, {"lr": 0.03, "momentum": 0.9, "nesterov": True}),
    (SGD, {"lr": 0.03, "momentum": 0.9, "nesterov": True, "weight_decay": 0.03}),
    (ADAM, {}),
    (ADAM, {"lr": 0.02, "betas": (0.5, 0.75), "eps": 0.03, "weight_decay": 0.1}),
    (ADAM, {"lr": 0.02, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    (ADAMW, {}),
    (ADAMW, {"lr": 0.02, "betas": (0.5, 0.75), "eps": 0.03, "weight_decay": 0.3}),
    (ADAMW, {"lr": 0.02, "betas": (0.0, 0.9), "weight_decay": 0.0}),
    (ADAGRAD, {}),
    (ADAGRAD, {"lr": 0.1, "initial_accumulator_value": 0.5, "eps": 0.01, "weight_decay": 0.03}),
    (RMSPROP, {}),
    (RMSPROP, {"alpha": 0.6, "eps": 0.01, "weight_decay": 0.1}),
    (RMSPROP, {"momentum": 0.7}),
    (RMSPROP, {"centered": True}),
    (RMSPROP, {"alpha": 0.6, "momentum": 0.7, "centered": True, "weight_decay": 0.1}),
]


class FormulasTest(unittest.TestCase):
    def test_equal_in_float64(self):
        for kind, options in OPTIMIZERS:
            for implementation in ({"foreach": False}, {"foreach": True}):
                with self.subTest(kind.__name__, **options, **implementation):
                    random = np.random.default_rng(1)
                    first = random.standard_normal(SHAPE)
                    w = torch.tensor(first, requires_grad=True)
                    optimizer = kind([w], **options, **implementation)
                    [rule] = rules_of(optimizer, steps=STEPS)
                    trained = Trained(rule, first)
                    for _ in range(STEPS):
                        gradient = random.standard_normal(SHAPE)
                        w.grad = torch.tensor(gradient)
                        optimizer.step()
                        trained.step(gradient)
                        # Values are on the order of 1.
                        np.testing.assert_allclose(
                            trained.value, w.detach().numpy(), rtol=1e-12, atol=1e-12
                        )

    def test_a_rule_for_each_group(self):
        optimizer = ADAMW(
            [
                {"params": [parameter()], "lr": 0.02, "layer": "of the script's own"},
                {"params": [parameter()], "weight_decay": 0.5},
            ],
            lr=0.01,
            betas=(0.5, 0.75),
        )
        same = {"beta1": 0.5, "beta2": 0.75, "epsilon": 1e-8}
        self.assertEqual(
            rules_of(optimizer, steps=STEPS),
            [
                holdfast.AdamW(learning_rate=0.02, weight_decay=0.01, **same),
                holdfast.AdamW(learning_rate=0.01, weight_decay=0.5, **same),
            ],
        )


class _Mine(torch.optim.SGD):
    pass


class RefusedTest(unittest.TestCase):
    def refused(self, kind, options, *words, error=ValueError):
        with self.subTest(kind.__name__, **options):
            with self.assertRaises(error) as caught:
                rules_of(kind([parameter()], **options), steps=STEPS)
            for word in (kind.__name__, *words):
                self.assertIn(word, str(caught.exception))

    def test_classes(self):
        others = {
            torch.optim.Adadelta: {},
            torch.optim.Adamax: {},
            torch.optim.ASGD: {},
            torch.optim.LBFGS: {},
            torch.optim.NAdam: {},
            torch.optim.RAdam: {},
            torch.optim.Rprop: {},
            _Mine: {"lr": 0.1},
        }
        for kind, options in others.items():
            self.refused(
                kind, options, "SGD, Adam, AdamW, Adagrad, RMSprop", error=TypeError
            )

    def test_options(self):
        for kind in (SGD, ADAM, ADAMW, ADAGRAD, RMSPROP):
            self.refused(kind, {"lr": 0.1, "maximize": True}, "maximize=True", "negate the loss")
            self.refused(
                kind, {"lr": 0.1, "differentiable": True}, "differentiable=True", "group 0"
            )
        for kind in (ADAM, ADAMW):
            self.refused(kind, {"amsgrad": True}, "amsgrad=True", "use amsgrad=False")
            self.refused(
                kind,
                {"lr": torch.tensor(0.1), "foreach": False},
                "lr is a tensor",
                "lr=float(lr)",
            )
        self.refused(
            SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.5}, "dampening=0.5", "dampening=0"
        )
        self.refused(ADAGRAD, {"lr_decay": 0.1}, "lr_decay=0.1", "lr_decay=0 with a scheduler")

    def test_option_that_is_not_known(self):
        optimizer = SGD([parameter()], lr=0.1)
        optimizer.defaults["lookahead"] = optimizer.param_groups[0]["lookahead"] = 5
        with self.assertRaisesRegex(ValueError, "lookahead=5 .*leave lookahead at its default"):
            rules_of(optimizer, steps=STEPS)

    def test_optimizer_that_has_made_steps(self):
        for kind, options in ((SGD, {"momentum": 0.9}), (ADAM, {}), (ADAGRAD, {})):
            w = parameter()
            optimizer = kind([w], lr=0.1, **options)
            rules_of(optimizer, steps=STEPS)
            w.grad = torch.ones_like(w)
            optimizer.step()
            with self.assertRaisesRegex(ValueError, f"{kind.__name__} has already made steps"):
                rules_of(optimizer, steps=STEPS)

    def test_scheduler_that_was_not_passed(self):
        optimizer = SGD([parameter()], lr=0.1)
        lr_scheduler.StepLR(optimizer, 10)
        with self.assertRaisesRegex(ValueError, "a scheduler was created for this SGD"):
            rules_of(optimizer, steps=STEPS)

    def test_scheduler_of_another_optimizer(self):
        scheduler = lr_scheduler.StepLR(SGD([parameter()], lr=0.1), 10)
        with self.assertRaisesRegex(ValueError, "StepLR belongs to another optimizer"):
            rules_of(SGD([parameter()], lr=0.1), steps=STEPS, scheduler=scheduler)


def warm(after, steps=7, factor=0.1):
    """A linear warm-up before the scheduler that ``after`` creates."""

    def make(optimizer):
        first = lr_scheduler.LinearLR(optimizer, start_factor=factor, total_iters=steps)
        return lr_scheduler.SequentialLR(optimizer, [first, after(optimizer)], milestones=[steps])

    return make


def made(kind, *arguments, **options):
    return lambda optimizer: kind(optimizer, *arguments, **options)


# Keyed by name: a function that creates the scheduler, and the number of steps that are compared.
SCHEDULERS = {
    "step": (made(lr_scheduler.StepLR, 7, gamma=0.3), 50),
    "step, many": (made(lr_scheduler.StepLR, 1, gamma=0.999), 2000),
    "multi-step": (made(lr_scheduler.MultiStepLR, [0, 5, 5, 20, 1000], gamma=0.3), 50),
    "constant": (made(lr_scheduler.ConstantLR, factor=0.25, total_iters=9), 50),
    "warm-up": (made(lr_scheduler.LinearLR, start_factor=0.01, total_iters=20), 50),
    "linear": (
        made(lr_scheduler.LinearLR, start_factor=1.0, end_factor=0.1, total_iters=20),
        50,
    ),
    "rising": (made(lr_scheduler.LinearLR, start_factor=0.2, end_factor=0.7, total_iters=20), 50),
    "exponential": (made(lr_scheduler.ExponentialLR, 0.9), 100),
    "exponential, slowly": (made(lr_scheduler.ExponentialLR, 0.9999), 5000),
    "exponential, once": (made(lr_scheduler.ExponentialLR, 0.9), 1),
    "polynomial": (made(lr_scheduler.PolynomialLR, total_iters=30, power=1.75), 50),
    "cosine": (made(lr_scheduler.CosineAnnealingLR, 49), 50),
    "cosine, not to 0": (made(lr_scheduler.CosineAnnealingLR, 60, eta_min=0.013), 50),
    "one cycle": (
        made(
            lr_scheduler.OneCycleLR,
            0.5,
            total_steps=50,
            pct_start=0.22,
            anneal_strategy="linear",
            cycle_momentum=False,
        ),
        50,
    ),
    "warm-up, step": (warm(made(lr_scheduler.StepLR, 6, gamma=0.3)), 50),
    "warm-up, multi-step": (warm(made(lr_scheduler.MultiStepLR, [5, 20], gamma=0.3)), 50),
    "warm-up, constant": (warm(made(lr_scheduler.ConstantLR, 0.25, 9)), 50),
    "warm-up, linear": (warm(made(lr_scheduler.LinearLR, 1.0, 0.1, 20)), 50),
    "warm-up, exponential": (warm(made(lr_scheduler.ExponentialLR, 0.9)), 50),
    "warm-up, polynomial": (warm(made(lr_scheduler.PolynomialLR, 30, 2.0)), 50),
    "warm-up, cosine": (warm(made(lr_scheduler.CosineAnnealingLR, 43, eta_min=0.001)), 50),
}
# Two numbers of a schedule are rounded to float32, each with a relative error of at most 2^-24.
ROUNDED = 2 * 2.0**-24


class SchedulesTest(unittest.TestCase):
    def compare(self, make, count, every):
        optimizer = SGD([{"params": [parameter()]}, {"params": [parameter()], "lr": 0.3}], lr=0.1)
        scheduler = make(optimizer)
        steps = count * every
        rules = rules_of(optimizer, steps=steps, scheduler=scheduler, scheduler_every=every)
        rules = [as_declared(rule) for rule in rules]
        for step in range(steps):
            rates = [rate_at(rule.learning_rate, rule.schedule, step) for rule in rules]
            # 1e-15: what remains of torch's rate when many products should make it 0.
            np.testing.assert_allclose(
                rates, scheduler.get_last_lr(), rtol=ROUNDED, atol=1e-15, err_msg=f"step {step}"
            )
            optimizer.step()
            if (step + 1) % every == 0 and step + 1 < steps:
                scheduler.step()

    def test_get_last_lr(self):
        for name, (make, count) in SCHEDULERS.items():
            with self.subTest(name):
                self.compare(make, count, every=1)

    def test_stepped_by_epoch(self):
        for name, (make, count) in SCHEDULERS.items():
            if count <= 100:
                with self.subTest(name):
                    self.compare(make, count, every=3)

    def test_a_schedule_of_holdfast(self):
        optimizer = SGD([parameter()], lr=0.1)
        schedule = holdfast.Cosine(decay_steps=STEPS)
        self.assertEqual(
            rules_of(optimizer, steps=STEPS, scheduler=schedule),
            [holdfast.Sgd(learning_rate=0.1, schedule=schedule)],
        )

    def refused(self, make, *words, error=ValueError, steps=STEPS, every=1):
        optimizer = SGD([parameter()], lr=0.1, momentum=0.9)
        scheduler = make(optimizer)
        name = type(scheduler).__name__
        with self.subTest(name, words=words):
            with self.assertRaises(error) as caught:
                rules_of(optimizer, steps=steps, scheduler=scheduler, scheduler_every=every)
            for word in (name, "Holdfast's", *words):
                self.assertIn(word, str(caught.exception))

    def test_refused_classes(self):
        class Mine(lr_scheduler.StepLR):
            pass

        for make in (
            made(lr_scheduler.LambdaLR, lambda n: 1.0),
            made(lr_scheduler.MultiplicativeLR, lambda n: 1.0),
            made(lr_scheduler.ReduceLROnPlateau),
            made(lr_scheduler.CyclicLR, 0.01, 0.1),
            made(lr_scheduler.CosineAnnealingWarmRestarts, 10),
            lambda o: lr_scheduler.ChainedScheduler([lr_scheduler.StepLR(o, 5)]),
            made(Mine, 5),
        ):
            self.refused(make, "StepLR, MultiStepLR", "holdfast.Piecewise", error=TypeError)

    def test_refused_options(self):
        cosine = made(lr_scheduler.CosineAnnealingLR, 48)
        self.refused(cosine, "rises again after T_max=48 steps", "the job makes 50")
        self.refused(made(lr_scheduler.CosineAnnealingLR, 60, eta_min=0.2), "eta_min=0.2")
        self.refused(
            made(lr_scheduler.StepLR, 1, gamma=0.9999), "more than 10000 times", steps=20000
        )
        one_cycle = {
            "max_lr": 0.5,
            "total_steps": 50,
            "pct_start": 0.22,
            "anneal_strategy": "linear",
            "cycle_momentum": False,
        }
        for change, word in (
            ({"cycle_momentum": True}, "cycle_momentum=False"),
            ({"three_phase": True}, "three_phase=False"),
            ({"anneal_strategy": "cos"}, 'anneal_strategy="linear"'),
            ({"pct_start": 0.225}, "pct_start"),
        ):
            self.refused(made(lr_scheduler.OneCycleLR, **{**one_cycle, **change}), word)

        step = made(lr_scheduler.StepLR, 5)
        for make in (
            lambda o: lr_scheduler.SequentialLR(o, [step(o), step(o)], milestones=[5]),
            lambda o: lr_scheduler.SequentialLR(
                o, [lr_scheduler.LinearLR(o, total_iters=5), step(o)], milestones=[6]
            ),
            lambda o: lr_scheduler.SequentialLR(
                o, [lr_scheduler.LinearLR(o), step(o), step(o)], milestones=[5, 9]
            ),
        ):
            self.refused(make, "not a linear warm-up and one more", "milestones=[w]")
        self.refused(
            warm(made(lr_scheduler.LinearLR, 0.5, 0.1, 20)), "LinearLR does not begin with"
        )
        self.refused(warm(made(lr_scheduler.LambdaLR, lambda n: 1.0)), "LambdaLR", error=TypeError)

    def test_scheduler_that_has_made_steps(self):
        optimizer = SGD([parameter()], lr=0.1)
        scheduler = lr_scheduler.StepLR(optimizer, 5)
        optimizer.step()
        scheduler.step()
        with self.assertRaisesRegex(ValueError, "StepLR has already made 1 steps"):
            rules_of(optimizer, steps=STEPS, scheduler=scheduler)


if __name__ == "__main__":
    unittest.main()
