# SPDX-License-Identifier: Apache-2.0

"""What scripts do to their models, gradients, optimizers, schedulers and loops.

Each habit is a script that runs under plain PyTorch and under Holdfast (see torch_sides.py), and
must either end with the same parameters or be refused: by an exception that names what the script
did, at the latest in the ``step`` that follows, with nothing of it pushed. The table in
docs/python/torch.md of what is refused is made from this one:

    python torch_habits.py                      # tries all habits, and lists what came of them
    python torch_habits.py NAME ...             # tries these, with their output
    python torch_habits.py --quick              # with half of the variants
    python torch_habits.py --table              # prints the table for the documentation
"""

import contextlib
import copy
import dataclasses
import gc
import random
import re
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from torch.nn import functional
from torch.nn.utils import parametrizations, prune
from torch_sides import CLASSES, INPUTS, STEPS, Runs, Variant, difference, in_parallel


@dataclasses.dataclass(frozen=True)
class Refusal:
    """A row of the documentation's table of what is refused.

    Attributes:
        does: What a script does.
        instead: What to do instead.
        pattern: A regular expression for the refusal's text.
        tested: The file with its test, if it is not a habit.
    """

    does: str
    instead: str
    pattern: str = ""
    tested: str = ""


REFUSALS = {
    "before the loop": Refusal(
        "loads, clamps, prunes or initializes parameters, converts them, or resets statistics, "
        "between `Optimizer(...)` and the loop",
        "do it before",
        "was changed after holdfast.torch.Optimizer was made",
    ),
    "written": Refusal(
        "writes to parameters within the loop: clamps weights, applies a mask, decays by hand, "
        "calls another optimizer's `step()`",
        "express it in the model (`torch.nn.utils.parametrize`), in the loss or in the gradient; "
        "values that are restored before `step` are no change",
        "was written to since the last step",
    ),
    "moved": Refusal(
        "moves parameters to shared memory within the loop",
        "do it before the loop",
        "the memory of .* was moved",
    ),
    "rates": Refusal(
        "writes rates or other options into `param_groups`, or uses a second scheduler",
        "`scheduler=`",
        r"param_groups\[\d+\]\['(lr|weight_decay|nesterov)'\]",
    ),
    "interval": Refusal(
        "calls `scheduler.step()` at another interval than `scheduler_every`, or before the first "
        "`step`",
        "give the interval, or leave the calls out",
        r"scheduler_every=|before the first step\(\)",
    ),
    "groups": Refusal(
        "adds or removes parameters or groups; makes a parameter trainable that was frozen",
        "do it before",
        "declared once|was frozen",
    ),
    "no gradient": Refusal(
        "freezes a parameter, or leaves out its gradient, where the rule has momentum, weight "
        "decay or Adam's step count",
        "see the table above",
        "has no gradient in this step|has a gradient now, and had none",
    ),
    "passes": Refusal(
        "calls `model.zero_grad()` between the passes of `accumulate`",
        "`opt.zero_grad()`",
        r"was reset between the backward passes of one step.*zero_grad\(\)",
    ),
    "scaler": Refusal(
        "calls `GradScaler.step` in each pass of `accumulate`, or uses a scaler with "
        "`process_group`, or unscales with tables",
        "once per step; `loss_scale=`",
        "GradScaler",
    ),
    "group": Refusal(
        "clips by `torch.nn.utils.clip_grad_norm_` with `process_group`",
        "`opt.clip_grad_norm`",
        tested="torch_group_test.py",
    ),
    "clipped": Refusal(
        "changes gradients after `opt.clip_grad_norm`, which clips what is pushed",
        "`torch.nn.utils.clip_grad_norm_`, or change them before",
        r"was changed after the optimizer's clip_grad_norm\(\)",
    ),
    "closure": Refusal("passes a closure to `step`", "call `backward` in the body", "closure"),
    "no step": Refusal(
        "leaves out `step()` for a batch: `continue`, one `step()` for several batches, or the "
        "`step()` of torch's own optimizer",
        "`opt.skip()`; `accumulate=`; `opt.step()`",
        "was neither pushed nor skipped",
    ),
    "two steps": Refusal(
        "calls `step()` twice for a batch", "one `step()` for each batch", "no current batch"
    ),
    "sparse": Refusal(
        "has sparse gradients, as `torch.nn.Embedding(sparse=True)`",
        "`sparse=False`, or `holdfast.torch.Embedding`",
        'the gradient of ".*" is sparse',
    ),
    "examples": Refusal(
        "passes `examples=` that is no whole number from 0 to 10^12",
        "`int(...)`",
        "examples is .*; it must be",
    ),
}


@dataclasses.dataclass(frozen=True)
class Habit:
    """A script and what must come of it.

    Attributes:
        script: The script, a function of a Side.
        what: What it does.
        refused: What the refusal is: a key of REFUSALS, or a regular expression if another table
            of the documentation has it; None if it must train as under PyTorch.
        workers: Numbers of workers with which it makes sense.
        overlap: The settings of overlap with which it makes sense.
        big: Whether it also runs with a model above the threshold of overlap.
        same: Whether no parameter changes under PyTorch either.
    """

    script: Callable
    what: str
    refused: str | None = None
    workers: tuple = (1, 2)
    overlap: tuple = (False, True)
    big: bool = False
    same: bool = False

    @property
    def name(self):
        return self.script.__name__

    @property
    def pattern(self):
        return REFUSALS[self.refused].pattern if self.refused in REFUSALS else self.refused

    def variants(self):
        for workers in self.workers:
            for overlap in self.overlap:
                yield Variant(workers, overlap)
        if self.big:
            yield Variant(1, True, big=True)


HABITS = []


def habit(what, **options):
    def add(script):
        HABITS.append(Habit(script, what, **options))
        return script

    return add


# Parts of scripts.


def sgd(model, lr=0.1, **more):
    return torch.optim.SGD(model.parameters(), lr=lr, **{"momentum": 0.9, **more})


def adam(model, lr=0.01, **more):
    return torch.optim.Adam(model.parameters(), lr=lr, **more)


def loss_of(model, batch):
    x, y = batch
    return functional.cross_entropy(model(x), y)


def nothing(*_):
    pass


def train(
    t,
    model=None,
    make=sgd,
    *,
    trained=None,
    data=None,
    loss=loss_of,
    made=nothing,
    before=nothing,
    graded=nothing,
    after=nothing,
    **options,
):
    """The usual loop, with what a habit adds at a place of it.

    made: called with the optimizer before the loop; before, graded, after: called with the number
    of the batch before the forward pass, after the backward pass and after the step.
    """
    model = t.net() if model is None else model
    inner = make(model)
    opt = t.optimizer(model if trained is None else trained, inner, **options)
    made(opt)
    for step, batch in enumerate(t.batches(opt, data)):
        before(step)
        opt.zero_grad()
        value = loss(model, batch)
        value.backward()
        graded(step)
        opt.step(value)
        after(step)
    return opt


# Gradients.


@habit("the usual loop", big=True)
def plain_loop(t):
    train(t)


@habit("`p.grad.clamp_()`, in place", big=True)
def clamp_gradients(t):
    model = t.net()

    def graded(step):
        for p in model.parameters():
            p.grad.clamp_(-0.01, 0.01)
        t.did()

    train(t, model, graded=graded)


@habit("`p.grad.data.clamp_()`, which raises no version", big=True)
def clamp_gradient_data(t):
    model = t.net()

    def graded(step):
        for p in model.parameters():
            p.grad.data.clamp_(-0.01, 0.01)
        t.did()

    train(t, model, graded=graded)


@habit("`p.grad.detach().mul_()`")
def detached_gradient(t):
    model = t.net()

    def graded(step):
        model[0].weight.grad.detach().mul_(0.5)
        t.did()

    train(t, model, graded=graded)


@habit("gradients changed through NumPy", big=True)
def numpy_gradient(t):
    model = t.net()

    def graded(step):
        for p in model.parameters():
            p.grad.numpy()[...] *= 0.5
        t.did()

    train(t, model, graded=graded)


@habit("one element of a gradient changed through `.data`")
def one_element(t):
    model = t.net()

    def graded(step):
        model[0].weight.grad.data[0, 0] += 0.25
        t.did()

    train(t, model, graded=graded)


@habit("gradients replaced by other tensors", big=True)
def replaced_gradients(t):
    model = t.net()

    def graded(step):
        for p in model.parameters():
            p.grad = p.grad * 0.5
        t.did()

    train(t, model, graded=graded)


@habit("`p.grad.data = ...`")
def replaced_gradient_data(t):
    model = t.net()

    def graded(step):
        for p in model.parameters():
            p.grad.data = p.grad.data * 0.5
        t.did()

    train(t, model, graded=graded)


@habit("noise added to gradients")
def gradient_noise(t):
    model = t.net()

    def graded(step):
        for p in model.parameters():
            p.grad.add_(torch.randn_like(p), alpha=0.01)
        t.did()

    train(t, model, graded=graded)


@habit("gradients centralised, as `p.grad.data.add_(-mean)`")
def centralised_gradients(t):
    model = t.net()

    def graded(step):
        for p in model.parameters():
            if p.dim() > 1:
                p.grad.data.add_(-p.grad.data.mean(dim=1, keepdim=True))
        t.did()

    train(t, model, graded=graded)


@habit("`torch.nn.utils.clip_grad_norm_()`", big=True)
def clip_norm(t):
    model = t.net()

    def graded(step):
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        t.did()

    train(t, model, graded=graded)


@habit("`torch.nn.utils.clip_grad_value_()`", big=True)
def clip_value(t):
    model = t.net()

    def graded(step):
        torch.nn.utils.clip_grad_value_(model.parameters(), 0.01)
        t.did()

    train(t, model, graded=graded)


@habit("`opt.clip_grad_norm()`", big=True)
def own_clip(t):
    model = t.net()
    opt = t.optimizer(model, sgd(model))
    for batch in t.batches(opt):
        opt.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        opt.clip_grad_norm(0.05)
        opt.step(loss)


@habit("`opt.clip_grad_norm(0.0)` in one step: momentum goes on")
def clip_to_nothing(t):
    model = t.net()
    opt = t.optimizer(model, sgd(model))
    for step, batch in enumerate(t.batches(opt)):
        opt.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        opt.clip_grad_norm(0.0 if step == 2 else 1.0)
        opt.step(loss)


@habit("`opt.clip_grad_norm()` and then `clip_grad_value_()`", refused="clipped")
def clip_after_own(t):
    model = t.net()
    opt = t.optimizer(model, sgd(model))
    for batch in t.batches(opt):
        opt.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        opt.clip_grad_norm(0.05)
        torch.nn.utils.clip_grad_value_(model.parameters(), 0.01)
        t.did()
        opt.step(loss)


@habit("`clip_grad_norm_()` and then `opt.clip_grad_norm()`")
def both_clips(t):
    model = t.net()
    opt = t.optimizer(model, sgd(model))
    for batch in t.batches(opt):
        opt.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model[0].parameters(), 0.05)
        t.did()
        opt.clip_grad_norm(0.02)
        opt.step(loss)


@habit("the loss scaled and the gradients divided by hand", big=True)
def manual_scale(t):
    model = t.net()

    def graded(step):
        for p in model.parameters():
            p.grad.data.div_(1024)
        t.did()

    train(t, model, loss=lambda m, b: loss_of(m, b) * 1024, graded=graded)


@habit("`p.register_hook()` that scales the gradient")
def tensor_hook(t):
    model = t.net()
    model[0].weight.register_hook(lambda gradient: gradient * 0.5)
    train(t, model)


@habit("`p.register_hook()` made after the optimizer")
def late_tensor_hook(t):
    model = t.net()

    def made(opt):
        model[0].weight.register_hook(lambda gradient: gradient * 0.5)

    train(t, model, made=made)


def clamped(parameter):
    parameter.grad.data.clamp_(-0.01, 0.01)


@habit("`p.register_post_accumulate_grad_hook()`, made before the optimizer")
def early_accumulate_hook(t):
    model = t.net()
    for p in model.parameters():
        p.register_post_accumulate_grad_hook(clamped)
    train(t, model)


@habit("`p.register_post_accumulate_grad_hook()`, made after the optimizer", big=True)
def late_accumulate_hook(t):
    model = t.net()

    def made(opt):
        for p in model.parameters():
            p.register_post_accumulate_grad_hook(clamped)
        t.did()

    train(t, model, made=made)


@habit("`register_full_backward_hook()` of a module")
def module_hook(t):
    model = t.net()
    model[-1].register_full_backward_hook(lambda module, inputs, outputs: (inputs[0] * 0.5,))
    train(t, model)


@habit("`p.grad = None` for one layer")
def gradient_dropped(t):
    model = t.net()

    def graded(step):
        if step == 2:
            for p in model[0].parameters():
                p.grad = None
            t.did()

    train(t, model, lambda m: sgd(m, momentum=0.0), graded=graded)


@habit("`p.grad = None` for one layer, with momentum", refused="no gradient")
def gradient_dropped_with_momentum(t):
    model = t.net()

    def graded(step):
        if step == 2:
            for p in model[0].parameters():
                p.grad = None
            t.did()

    train(t, model, graded=graded)


@habit("`p.grad.zero_()` for one layer")
def gradient_zeroed(t):
    model = t.net()

    def graded(step):
        for p in model[0].parameters():
            p.grad.zero_()
        t.did()

    train(t, model, graded=graded)


@habit("gradients computed by `torch.autograd.grad`")
def autograd_grad(t):
    model = t.net()
    opt = t.optimizer(model, sgd(model))
    for batch in t.batches(opt):
        loss = loss_of(model, batch)
        parameters = list(model.parameters())
        for p, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            p.grad = gradient
        opt.step(loss)


@habit("gradients from `torch.func.grad`")
def functional_grad(t):
    model = t.net()

    def value(parameters, x, y):
        return functional.cross_entropy(torch.func.functional_call(model, parameters, (x,)), y)

    opt = t.optimizer(model, sgd(model))
    for x, y in t.batches(opt):
        gradients = torch.func.grad(value)(dict(model.named_parameters()), x, y)
        for name, p in model.named_parameters():
            p.grad = gradients[name].detach()
        opt.step()


@habit("no `zero_grad()` at all: gradients add up over the steps")
def never_zeroed(t):
    model = t.net()
    opt = t.optimizer(model, sgd(model, lr=0.01))
    for batch in t.batches(opt):
        loss = loss_of(model, batch)
        loss.backward()
        opt.step(loss)


@habit("`zero_grad(set_to_none=False)`", big=True)
def zeroed_in_place(t):
    model = t.net()
    opt = t.optimizer(model, sgd(model))
    for batch in t.batches(opt):
        opt.zero_grad(set_to_none=False)
        loss = loss_of(model, batch)
        loss.backward()
        opt.step(loss)


@habit("`model.zero_grad()` instead of the optimizer's")
def model_zero_grad(t):
    model = t.net()
    opt = t.optimizer(model, sgd(model))
    for batch in t.batches(opt):
        model.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        opt.step(loss)


@habit("`zero_grad()` of torch's own optimizer")
def inner_zero_grad(t):
    model = t.net()
    inner = sgd(model)
    opt = t.optimizer(model, inner)
    for batch in t.batches(opt):
        inner.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        opt.step(loss)


@habit("`zero_grad()` after the step instead of before")
def zeroed_after(t):
    model = t.net()
    opt = t.optimizer(model, sgd(model))
    for batch in t.batches(opt):
        loss = loss_of(model, batch)
        loss.backward()
        opt.step(loss)
        opt.zero_grad()


@habit("`zero_grad()` between the backward pass and the step", same=True)
def zeroed_between(t):
    model = t.net()
    opt = t.optimizer(model, sgd(model, momentum=0.0))
    for batch in t.batches(opt):
        loss = loss_of(model, batch)
        loss.backward()
        opt.zero_grad()
        t.did()
        opt.step(loss)


# Backward passes.


@habit("two losses, one backward pass each", big=True)
def two_losses(t):
    model = t.net()
    opt = t.optimizer(model, sgd(model))
    for x, y in t.batches(opt):
        opt.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        t.did()
        model(x).square().mean().backward()
        opt.step(loss)


@habit("`backward(retain_graph=True)` twice")
def retained_graph(t):
    model = t.net()
    opt = t.optimizer(model, sgd(model))
    for batch in t.batches(opt):
        opt.zero_grad()
        loss = loss_of(model, batch)
        loss.backward(retain_graph=True)
        t.did()
        loss.backward()
        opt.step(loss)


@habit("two losses for different parts of a model")
def two_parts(t):
    model = t.net()
    opt = t.optimizer(model, sgd(model))
    for x, y in t.batches(opt):
        opt.zero_grad()
        hidden = model[1](model[0](x))
        functional.cross_entropy(model[2](hidden.detach()), y).backward()
        hidden.square().mean().backward()
        opt.step()


@habit("a gradient penalty, with `create_graph=True`")
def gradient_penalty(t):
    def loss(model, batch):
        x, y = batch
        x = x.clone().requires_grad_()
        output = model(x)
        (gradient,) = torch.autograd.grad(output.sum(), x, create_graph=True)
        return functional.cross_entropy(output, y) + gradient.square().mean()

    train(t, loss=loss)


@habit("`backward(create_graph=True)` and a second one through the gradients")
def double_backward(t):
    model = t.net()
    opt = t.optimizer(model, sgd(model))
    for batch in t.batches(opt):
        opt.zero_grad()
        loss = loss_of(model, batch)
        loss.backward(create_graph=True)
        t.did()
        torch.stack([p.grad.square().sum() for p in model.parameters()]).sum().backward()
        opt.step(loss.detach())


@habit("sharpness-aware minimisation: two passes, weights moved in between", refused="written")
def sharpness_aware(t):
    model = t.net()
    opt = t.optimizer(model, sgd(model))
    for batch in t.batches(opt):
        opt.zero_grad()
        loss_of(model, batch).backward()
        with torch.no_grad():
            moves = [p.grad * 0.05 for p in model.parameters()]
            for p, move in zip(model.parameters(), moves, strict=True):
                p.add_(move)
        opt.zero_grad()
        t.did()
        loss = loss_of(model, batch)
        loss.backward()
        with torch.no_grad():
            for p, move in zip(model.parameters(), moves, strict=True):
                p.sub_(move)
        opt.step(loss)


@habit("`step(closure)`", refused="closure")
def closure(t):
    model = t.net()
    opt = t.optimizer(model, sgd(model))
    for batch in t.batches(opt):

        def compute(batch=batch):
            opt.zero_grad()
            loss = loss_of(model, batch)
            loss.backward()
            return loss

        t.did()
        opt.step(compute)


@habit("`torch.optim.LBFGS`", refused="LBFGS")
def lbfgs(t):
    model = t.net()
    opt = t.optimizer(model, torch.optim.LBFGS(model.parameters()))
    for batch in t.batches(opt):

        def compute(batch=batch):
            opt.zero_grad()
            loss = loss_of(model, batch)
            loss.backward()
            return loss

        opt.step(compute)


@habit("accumulation by hand, with a `step()` for each piece left out")
def accumulated_by_hand(t):
    model = t.net()
    opt = t.optimizer(model, sgd(model))
    for x, y in t.batches(opt):
        opt.zero_grad()
        half = len(x) // 2
        loss = functional.cross_entropy(model(torch.cat([x[:half], x[half:]])), y)
        loss.backward()
        opt.step(loss)


@habit("pieces of a batch, one backward pass each")
def pieces(t):
    model = t.net()
    opt = t.optimizer(model, sgd(model))
    for x, y in t.batches(opt):
        opt.zero_grad()
        for rows in (slice(0, 2), slice(2, 4)):
            loss = functional.cross_entropy(model(x[rows]), y[rows]) / 2
            loss.backward()
            t.did()
        opt.step(loss)


@habit("`step()` only every second batch", refused="no step")
def step_every_second(t):
    model = t.net()
    opt = t.optimizer(model, sgd(model))
    for step, batch in enumerate(t.batches(opt)):
        loss = loss_of(model, batch) / 2
        loss.backward()
        if step % 2 == 1:
            opt.step(loss)
            opt.zero_grad()
        t.did()


@habit("`accumulate=2`", big=True)
def accumulate(t):
    train(t, accumulate=2)


@habit("`accumulate=2` and `model.zero_grad()` in each pass", refused="passes")
def accumulate_with_model_zero_grad(t):
    model = t.net()

    def before(step):
        if step % 2 == 1:
            t.did()
        model.zero_grad()

    train(t, model, before=before, accumulate=2)


@habit("`accumulate=2` and `clip_grad_norm_()` in each pass")
def accumulate_with_clip_norm(t):
    model = t.net()

    def graded(step):
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.02)
        t.did()

    train(t, model, graded=graded, accumulate=2)


@habit("`accumulate=2` and `clip_grad_norm_()` in the last pass")
def accumulate_with_last_clip_norm(t):
    model = t.net()

    def graded(step):
        if step % 2 == 1:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.02)
            t.did()

    train(t, model, graded=graded, accumulate=2)


@habit("`accumulate=2` and gradients zeroed after the last pass")
def accumulate_with_zeroed_gradient(t):
    model = t.net()

    def graded(step):
        if step % 2 == 1:
            for p in model[0].parameters():
                p.grad.zero_()
            t.did()

    train(t, model, graded=graded, accumulate=2)


@habit("`accumulate=2` and `opt.clip_grad_norm()`")
def accumulate_with_own_clip(t):
    model = t.net()
    opt = t.optimizer(model, sgd(model), accumulate=2)
    for batch in t.batches(opt):
        opt.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        opt.clip_grad_norm(0.02)
        opt.step(loss)


@habit("`accumulate=2` and `zero_grad()` and `step()` in the last pass alone")
def accumulate_with_last_step(t):
    model = t.net()
    opt = t.optimizer(model, sgd(model), accumulate=2)
    for step, batch in enumerate(t.batches(opt)):
        if step % 2 == 0:
            opt.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        opt.step(loss)


# Mixed precision.


def scaled(t, scaler, *, unscale=False, clip=False, model=None, make=sgd, loss=loss_of, at=nothing):
    model = t.net() if model is None else model
    opt = t.optimizer(model, make(model))
    for step, batch in enumerate(t.batches(opt)):
        opt.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=False):
            value = loss(model, batch)
        scaler.scale(value).backward()
        at(step)
        t.did()
        if unscale:
            scaler.unscale_(opt)
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        scaler.step(opt)
        scaler.update()


@habit("`GradScaler`: scale, step, update", big=True)
def scaler_plain(t):
    scaled(t, torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2))


@habit("`GradScaler.unscale_()` and `clip_grad_norm_()`", big=True)
def scaler_unscale(t):
    scaled(t, torch.amp.GradScaler("cpu", init_scale=1024.0), unscale=True, clip=True)


@habit("`GradScaler` that starts with overflows, as it usually does", big=True)
def scaler_overflow(t):
    scaled(t, torch.amp.GradScaler("cpu", init_scale=2.0**127, backoff_factor=2.0**-60))


@habit("`GradScaler` whose `unscale_()` finds an overflow")
def scaler_unscale_overflow(t):
    scaled(
        t,
        torch.amp.GradScaler("cpu", init_scale=2.0**127, backoff_factor=2.0**-60),
        unscale=True,
        clip=True,
    )


@habit("`accumulate=2` and `GradScaler`, whose `step` and `update` are called once per step")
def scaler_with_accumulate(t):
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    model = t.net()
    opt = t.optimizer(model, sgd(model), accumulate=2)
    for step, batch in enumerate(t.batches(opt)):
        opt.zero_grad()
        scaler.scale(loss_of(model, batch)).backward()
        if step % 2 == 1:
            scaler.unscale_(opt)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
            scaler.step(opt)
            scaler.update()


@habit("`accumulate=2` and `GradScaler.step` in each pass", refused="scaler")
def scaler_in_each_pass(t):
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    model = t.net()
    opt = t.optimizer(model, sgd(model), accumulate=2)
    for batch in t.batches(opt):
        opt.zero_grad()
        scaler.scale(loss_of(model, batch)).backward()
        t.did()
        scaler.step(opt)
        scaler.update()


@habit("`GradScaler(enabled=False)`")
def scaler_disabled(t):
    scaled(t, torch.amp.GradScaler("cpu", enabled=False), unscale=True, clip=True)


@habit("autocast to bfloat16", big=True)
def autocast(t):
    def loss(model, batch):
        with torch.autocast("cpu", torch.bfloat16):
            return loss_of(model, batch)

    train(t, loss=loss)


# Parameters.


def loaded(t):
    other = t.net()
    torch.manual_seed(7)
    for p in other.parameters():
        torch.nn.init.uniform_(p, -0.05 if t.variant.big else -0.5, 0.05 if t.variant.big else 0.5)
    return other.state_dict()


@habit("`load_state_dict()` before the optimizer is made")
def loaded_before(t):
    model = t.net()
    model.load_state_dict(loaded(t))
    train(t, model)


@habit(
    "`load_state_dict()` after the optimizer is made, before the loop",
    big=True,
    refused="before the loop",
)
def loaded_after(t):
    model = t.net()

    def made(opt):
        model.load_state_dict(loaded(t))
        t.did()

    train(t, model, made=made)


@habit("`load_state_dict()` in the loop, before the forward pass", refused="written")
def loaded_in_loop(t):
    model = t.net()

    def before(step):
        if step == 3:
            model.load_state_dict(loaded(t))
            t.did()

    train(t, model, before=before)


@habit("`load_state_dict(assign=True)` after the optimizer is made")
def loaded_by_assignment(t):
    # torch's optimizer keeps the old parameters, which have no gradients: nothing trains.
    model = t.net()

    def made(opt):
        model.load_state_dict(loaded(t), assign=True)
        t.did()

    train(t, model, made=made)


@habit("weights clamped after each step, as in WGAN", big=True, refused="written")
def clamped_weights(t):
    model = t.net()

    def after(step):
        for p in model.parameters():
            p.data.clamp_(-0.2, 0.2)
        t.did(again=True)

    train(t, model, after=after)


@habit("weights clamped before each forward pass", refused="written")
def clamped_before(t):
    model = t.net()

    def before(step):
        with torch.no_grad():
            for p in model.parameters():
                p.clamp_(-0.2, 0.2)
        t.did(again=True)

    train(t, model, before=before)


@habit("weights clamped between the backward pass and the step", big=True, refused="written")
def clamped_between(t):
    model = t.net()

    def graded(step):
        with torch.no_grad():
            for p in model.parameters():
                p.clamp_(-0.2, 0.2)
        t.did(again=True)

    train(t, model, graded=graded)


@habit("one element of a weight written through `.data`", big=True, refused="written")
def written_element(t):
    model = t.net()

    def before(step):
        if step == 2:
            model[0].weight.data[1, 2] = 0.75
            t.did()

    train(t, model, before=before)


@habit("weights written through NumPy", refused="written")
def written_by_numpy(t):
    model = t.net()

    def after(step):
        if step == 2:
            model[0].weight.detach().numpy()[0] = 0.5
            t.did()

    train(t, model, after=after)


@habit("`p.data = ...`, other memory with the same values")
def other_memory(t):
    model = t.net()

    def graded(step):
        for p in model.parameters():
            p.data = p.data.clone()

    train(t, model, graded=graded)


@habit("`p.data = ...`, other memory with other values", refused="written")
def other_values(t):
    model = t.net()

    def graded(step):
        if step == 2:
            model[0].weight.data = model[0].weight.data * 0.5
            t.did()

    train(t, model, graded=graded)


@habit("a weight decay by hand: `p.mul_(1 - lr * decay)`", refused="written")
def decay_by_hand(t):
    model = t.net()

    def graded(step):
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(0.99)
        t.did()

    train(t, model, graded=graded)


@habit("rows of a weight normalised after each step (max-norm)", refused="written")
def max_norm(t):
    model = t.net()

    def after(step):
        with torch.no_grad():
            model[-1].weight.copy_(torch.renorm(model[-1].weight, 2, 0, 0.3))
        t.did(again=True)

    train(t, model, after=after)


@habit("a layer initialised again in the loop", refused="written")
def reset_layer(t):
    model = t.net()

    def before(step):
        if step == 3:
            torch.manual_seed(3)
            model[-1].reset_parameters()
            t.did()

    train(t, model, before=before)


@habit("weights initialised after the optimizer is made", refused="before the loop")
def initialised_after(t):
    model = t.net()

    def made(opt):
        torch.manual_seed(5)
        for p in model.parameters():
            torch.nn.init.normal_(p, std=0.1)
        t.did()

    train(t, model, made=made)


@habit("a mask multiplied into the weights after each step", refused="written")
def mask_after_step(t):
    model = t.net()
    mask = (model[0].weight.detach().abs() > 0.15).float()

    def after(step):
        with torch.no_grad():
            model[0].weight.mul_(mask)
        t.did(again=True)

    train(t, model, after=after)


@habit("`torch.nn.utils.prune` before the optimizer is made")
def pruned_before(t):
    model = t.net()
    prune.l1_unstructured(model[0], "weight", amount=0.5)
    train(t, model)


@habit("`torch.nn.utils.prune` in the loop: the parameter gets another name")
def pruned_in_loop(t):
    model = t.net()

    def after(step):
        if step == 2:
            prune.l1_unstructured(model[0], "weight", amount=0.5)
            t.did()

    train(t, model, after=after)


@habit("`prune.remove` in the loop: the mask is multiplied into the parameter", refused="written")
def prune_removed(t):
    model = t.net()
    prune.l1_unstructured(model[0], "weight", amount=0.5)

    def after(step):
        if step == 2:
            prune.remove(model[0], "weight")
            t.did()

    train(t, model, after=after)


@habit("`weight_norm`")
def weight_norm(t):
    model = t.net()
    parametrizations.weight_norm(model[0])
    train(t, model)


@habit("`spectral_norm`")
def spectral_norm(t):
    model = t.net()
    parametrizations.spectral_norm(model[0])
    # Its power iteration has buffers, which are local; both workers compute the same.
    train(t, model)


@habit("`orthogonal`")
def orthogonal(t):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(INPUTS, INPUTS), torch.nn.Linear(INPUTS, CLASSES))
    parametrizations.orthogonal(model[0])
    train(t, model)


@habit("tied weights")
def tied_weights(t):
    torch.manual_seed(1)
    model = torch.nn.ModuleDict(
        {
            "a": torch.nn.Linear(INPUTS, INPUTS),
            "b": torch.nn.Linear(INPUTS, INPUTS),
            "out": torch.nn.Linear(INPUTS, CLASSES),
        }
    )
    model["b"].weight = model["a"].weight

    def loss(model, batch):
        x, y = batch
        hidden = model["b"](model["a"](x).tanh()).tanh()
        return functional.cross_entropy(model["out"](hidden), y)

    train(t, model, loss=loss)


@habit("weights tied after the optimizer is made")
def tied_later(t):
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(INPUTS, INPUTS),
        torch.nn.Linear(INPUTS, INPUTS),
        torch.nn.Linear(INPUTS, CLASSES),
    )

    def made(opt):
        model[1].weight = model[0].weight
        t.did()

    train(t, model, lambda m: sgd(m, momentum=0.0), made=made)


@habit(
    "parameters that share memory",
    refused="are different parameters that share memory",
    overlap=(False,),
)
def shared_memory(t):
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(INPUTS, INPUTS),
        torch.nn.Linear(INPUTS, INPUTS),
        torch.nn.Linear(INPUTS, CLASSES),
    )
    model[1].weight = torch.nn.Parameter(model[0].weight.data)
    train(t, model, lambda m: sgd(m, momentum=0.0))


@habit("a frozen layer")
def frozen(t):
    model = t.net()
    model[0].requires_grad_(False)
    train(t, model)


@habit("a frozen layer that is unfrozen in the loop", big=True, refused="groups")
def unfrozen_later(t):
    model = t.net()
    model[0].requires_grad_(False)

    def before(step):
        if step == 3:
            model[0].requires_grad_(True)
            t.did()

    train(t, model, before=before)


@habit("a frozen layer that is unfrozen before the loop", refused="groups")
def unfrozen_before_loop(t):
    model = t.net()
    model[0].requires_grad_(False)

    def made(opt):
        model[0].requires_grad_(True)
        t.did()

    train(t, model, made=made)


@habit("a layer frozen in the loop, with plain SGD", big=True)
def frozen_later(t):
    model = t.net()

    def before(step):
        if step == 3:
            model[0].requires_grad_(False)
            t.did()

    train(t, model, lambda m: sgd(m, momentum=0.0), before=before)


@habit("a layer frozen in the loop, with momentum", refused="no gradient")
def frozen_later_with_momentum(t):
    model = t.net()

    def before(step):
        if step == 3:
            model[0].requires_grad_(False)
            t.did()

    train(t, model, before=before)


@habit("a layer that is frozen and unfrozen by turns (GAN)")
def frozen_by_turns(t):
    model = t.net()

    def before(step):
        model[0].requires_grad_(step % 2 == 0)
        if step == 1:
            t.did()

    train(t, model, lambda m: sgd(m, momentum=0.0), before=before)


@habit("a layer added to the model in the loop")
def added_layer(t):
    # torch's optimizer does not know it either.
    model = t.net()

    def before(step):
        if step == 3:
            torch.manual_seed(3)
            model.append(torch.nn.Linear(CLASSES, CLASSES))

    train(t, model, before=before)


@habit("a layer replaced in the loop: it has other parameters")
def replaced_layer(t):
    # Under PyTorch the new layer does not train, as the optimizer has the old one.
    model = t.net()

    def before(step):
        if step == 3:
            torch.manual_seed(3)
            model[-1] = torch.nn.Linear(model[-1].in_features, CLASSES)
            t.did()

    train(t, model, lambda m: sgd(m, momentum=0.0), before=before)


@habit("`add_param_group()` in the loop", refused="groups")
def added_group(t):
    torch.manual_seed(1)
    body, head = torch.nn.Linear(INPUTS, 5), torch.nn.Linear(5, CLASSES)
    model = torch.nn.Sequential(body, head)
    opt = t.optimizer(model, torch.optim.SGD(head.parameters(), lr=0.1))
    for step, batch in enumerate(t.batches(opt)):
        if step == 2:
            t.did()
            opt.add_param_group({"params": list(body.parameters()), "lr": 0.1})
        opt.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        opt.step(loss)


@habit("parameters that no loss reaches, with SGD")
def unused_sgd(t):
    model = t.net()
    model.unused = torch.nn.Parameter(torch.ones(3))
    train(
        t,
        model,
        lambda m: sgd(m, momentum=0.0),
        loss=lambda m, b: functional.cross_entropy(m[2](m[1](m[0](b[0]))), b[1]),
    )


def with_unused(t):
    torch.manual_seed(1)
    return torch.nn.ModuleDict(
        {
            "used": torch.nn.Linear(INPUTS, CLASSES),
            "unused": torch.nn.Linear(2, 2),
        }
    )


def used_loss(model, batch):
    return functional.cross_entropy(model["used"](batch[0]), batch[1])


@habit("parameters that no loss reaches, with momentum")
def unused_momentum(t):
    train(t, with_unused(t), loss=used_loss)


@habit("parameters that no loss reaches, with Adam")
def unused_adam(t):
    train(t, with_unused(t), adam, loss=used_loss)


@habit("parameters that no loss reaches, with weight decay", refused="no gradient")
def unused_decay(t):
    train(t, with_unused(t), lambda m: sgd(m, weight_decay=0.1), loss=used_loss)


@habit("a layer that only some steps use, with momentum", refused="no gradient")
def sometimes_used(t):
    model = t.net()
    model.extra = torch.nn.Linear(CLASSES, CLASSES)
    count = 0

    def loss(model, batch):
        nonlocal count
        count += 1
        output = model[2](model[1](model[0](batch[0])))
        if count % 2:
            output = model.extra(output)
        return functional.cross_entropy(output, batch[1])

    train(t, model, loss=loss)


@habit("a layer that only some steps use, with plain SGD", big=True)
def sometimes_used_sgd(t):
    model = t.net()
    model.extra = torch.nn.Linear(CLASSES, CLASSES)
    count = 0

    def loss(model, batch):
        nonlocal count
        count += 1
        output = batch[0]
        for layer in list(model)[:-1] if t.variant.big else [model[0], model[1], model[2]]:
            if layer is not model.extra:
                output = layer(output)
        if count % 2:
            output = model.extra(output)
        return functional.cross_entropy(output, batch[1])

    train(t, model, lambda m: sgd(m, momentum=0.0), loss=loss)


@habit("a parameter with no elements")
def empty_parameter(t):
    model = t.net()
    model.register_parameter("nothing", torch.nn.Parameter(torch.zeros(0, 3)))
    train(t, model)


@habit("a parameter with no elements that the loss reaches")
def empty_used_parameter(t):
    model = t.net()
    model.register_parameter("nothing", torch.nn.Parameter(torch.zeros(0, 3)))
    train(t, model, loss=lambda m, b: loss_of(m, b) + m.nothing.sum())


@habit("a scalar parameter")
def scalar_parameter(t):
    torch.manual_seed(1)
    model = torch.nn.ModuleDict({"net": torch.nn.Linear(INPUTS, CLASSES)})
    model.register_parameter("scale", torch.nn.Parameter(torch.tensor(1.5)))
    train(t, model, loss=lambda m, b: functional.cross_entropy(m["net"](b[0]) * m.scale, b[1]))


@habit("a transposed parameter")
def transposed_parameter(t):
    torch.manual_seed(1)
    model = torch.nn.ModuleDict({"net": torch.nn.Linear(INPUTS, CLASSES)})
    model.register_parameter("turned", torch.nn.Parameter(torch.randn(INPUTS, 4).t() * 0.3))

    def loss(model, batch):
        return (
            functional.cross_entropy(model["net"](batch[0]), batch[1])
            + (batch[0] @ model.turned.t()).square().mean()
        )

    train(t, model, loss=loss)


@habit("a strided parameter, a view of other memory")
def strided_parameter(t):
    torch.manual_seed(1)
    model = torch.nn.ModuleDict({"net": torch.nn.Linear(INPUTS, CLASSES)})
    model.register_parameter("part", torch.nn.Parameter(torch.randn(INPUTS, 8)[:, ::2]))

    def loss(model, batch):
        return (
            functional.cross_entropy(model["net"](batch[0]), batch[1])
            + (batch[0] @ model.part).square().mean()
        )

    train(t, model, loss=loss)


@habit("a model in `channels_last`")
def channels_last(t):
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Unflatten(1, (2, 3, 1)),
        torch.nn.Conv2d(2, 4, (2, 1)),
        torch.nn.Flatten(),
        torch.nn.Linear(8, CLASSES),
    ).to(memory_format=torch.channels_last)
    train(t, model)


@habit("`model.to(memory_format=torch.channels_last)` after the optimizer is made")
def channels_last_later(t):
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Unflatten(1, (2, 3, 1)),
        torch.nn.Conv2d(2, 4, (2, 1)),
        torch.nn.Flatten(),
        torch.nn.Linear(8, CLASSES),
    )

    def made(opt):
        model.to(memory_format=torch.channels_last)
        t.did()

    train(t, model, made=made)


@habit("sparse gradients of `torch.nn.Embedding(sparse=True)`", refused="sparse")
def sparse_gradient(t):
    torch.manual_seed(1)
    model = torch.nn.ModuleDict(
        {"rows": torch.nn.Embedding(10, 4, sparse=True), "out": torch.nn.Linear(4, CLASSES)}
    )

    def loss(model, batch):
        return functional.cross_entropy(model["out"](model["rows"](batch[1])), batch[1])

    t.did()
    train(t, model, lambda m: sgd(m, momentum=0.0), loss=loss)


@habit(
    "`torch.nn.Embedding` with `padding_idx` and `max_norm`, which writes its weight",
    refused="written",
)
def embedding_max_norm(t):
    torch.manual_seed(1)
    model = torch.nn.ModuleDict(
        {
            "rows": torch.nn.Embedding(10, 4, padding_idx=0, max_norm=0.5),
            "out": torch.nn.Linear(4, CLASSES),
        }
    )

    def loss(model, batch):
        t.did(again=True)
        return functional.cross_entropy(model["out"](model["rows"](batch[1])), batch[1])

    train(t, model, loss=loss)


@habit("parameters in `ParameterList` and `ParameterDict`")
def parameter_containers(t):
    torch.manual_seed(1)
    model = torch.nn.ModuleDict(
        {
            "list": torch.nn.ParameterList([torch.randn(INPUTS, 4), torch.zeros(4)]),
            "dict": torch.nn.ParameterDict(
                {"w": torch.randn(4, CLASSES), "b": torch.zeros(CLASSES)}
            ),
        }
    )

    def loss(model, batch):
        hidden = (batch[0] @ model["list"][0] + model["list"][1]).tanh()
        return functional.cross_entropy(hidden @ model["dict"]["w"] + model["dict"]["b"], batch[1])

    train(t, model, loss=loss)


def named(*names):
    torch.manual_seed(1)
    model = torch.nn.Module()
    for name in names:
        model.register_parameter(name, torch.nn.Parameter(torch.randn(INPUTS, CLASSES) * 0.3))
    return model


def named_loss(model, batch):
    return functional.cross_entropy(batch[0] @ sum(model.parameters()), batch[1])


@habit("names that begin with an underscore")
def underscore_names(t):
    train(t, named("_weight", "__w", "-w"), loss=named_loss)


@habit("names with spaces and other characters")
def odd_names(t):
    train(
        t,
        named("a b", "a/b", "a:0", "50%", "a_20b", '"quoted"', "back\\slash", "new\nline"),
        loss=named_loss,
    )


@habit("names that are not ASCII")
def other_alphabets(t):
    train(t, named("größe", "重み", "вес", "e\u0301", "\u00e9"), loss=named_loss)


@habit("long names")
def long_names(t):
    train(t, named("a" * 250, "b" * 600), loss=named_loss)


@habit("names that differ in their case, or by how they are escaped")
def similar_names(t):
    train(t, named("w", "W", "w ", "w%20", "_w", "%5Fw"), loss=named_loss)


@habit("`model.to(torch.float64)` after the optimizer is made", refused="before the loop")
def double_later(t):
    model = t.net()

    def made(opt):
        model.to(torch.float64)
        t.did()

    train(
        t,
        model,
        made=made,
        loss=lambda m, b: functional.cross_entropy(m(b[0].to(m[0].weight.dtype)), b[1]),
    )


@habit("`model.bfloat16()` after the optimizer is made", refused="before the loop")
def bfloat16_later(t):
    model = t.net()

    def made(opt):
        model.bfloat16()
        t.did()

    train(
        t,
        model,
        made=made,
        loss=lambda m, b: functional.cross_entropy(m(b[0].to(m[0].weight.dtype)).float(), b[1]),
    )


@habit(
    "`model.half().float()` after the optimizer is made: rounded values in other memory",
    refused="before the loop",
)
def half_and_back(t):
    model = t.net()

    def made(opt):
        model.half().float()
        t.did()

    train(t, model, made=made)


@habit("a model of float64", refused="float64")
def double_model(t):
    train(t, t.net().double(), loss=lambda m, b: functional.cross_entropy(m(b[0].double()), b[1]))


@habit('`model.to("cpu")` after the optimizer is made')
def to_cpu(t):
    model = t.net()
    train(t, model, made=lambda opt: model.to("cpu"))


@habit("`model.share_memory()` after the optimizer is made")
def share_memory(t):
    model = t.net()
    train(t, model, made=lambda opt: model.share_memory())


@habit('`model.to("meta")` after the optimizer is made: PyTorch itself refuses', refused="meta")
def to_meta(t):
    model = t.net()
    train(t, model, made=lambda opt: model.to("meta"))


@habit("a conversion that replaces parameters: nothing trains, under PyTorch either", same=True)
def replaced_parameters(t):
    model = t.net()
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    train(t, model, made=lambda opt: model.double().float())


@habit("`model.share_memory()` in the loop", refused="moved")
def share_memory_in_loop(t):
    model = t.net()

    def before(step):
        if step == 2:
            model.share_memory()
            t.did()

    train(t, model, before=before)


# Buffers.


def normed(t):
    return t.net(torch.nn.BatchNorm1d(1024 if t.variant.big else 5))


@habit("batch norm", big=True)
def batch_norm(t):
    train(t, normed(t))


@habit("batch norm whose statistics are reset in the loop")
def reset_statistics(t):
    model = normed(t)

    def before(step):
        if step == 3:
            model[2].reset_running_stats()
            t.did()

    train(t, model, before=before)


@habit("batch norm whose momentum is changed in the loop")
def changed_momentum(t):
    model = normed(t)

    def before(step):
        if step == 3:
            model[2].momentum = 0.5
            t.did()

    train(t, model, before=before)


@habit("batch norm with `momentum=None`", refused="momentum=None")
def cumulative_statistics(t):
    model = t.net(torch.nn.BatchNorm1d(5, momentum=None))
    train(t, model)


@habit("batch norm whose buffers are replaced by others")
def replaced_buffers(t):
    model = normed(t)

    def before(step):
        if step == 3:
            model[2].running_mean = torch.zeros(5)
            model[2].register_buffer("running_var", torch.ones(5))
            t.did()

    train(t, model, before=before)


@habit(
    "a model with batch norm moved after the optimizer is made: `to(...)` replaces buffers",
    big=True,
)
def moved_buffers(t):
    model = normed(t)
    train(t, model, made=lambda opt: model.double().float())


@habit("batch norm in `eval()` for some steps")
def frozen_statistics(t):
    model = normed(t)

    def before(step):
        model.train(step % 2 == 0)

    train(t, model, before=before)


@habit("an evaluation between steps, with `eval()` and `no_grad()`")
def evaluated(t):
    model = normed(t)

    def after(step):
        model.eval()
        with torch.no_grad():
            model(torch.ones(2, INPUTS))
        model.train()

    train(t, model, after=after)


@habit("two forward passes in a step, through batch norm")
def two_forwards(t):
    def loss(model, batch):
        return loss_of(model, batch) + loss_of(model, (batch[0] + 0.1, batch[1]))

    train(t, normed(t), loss=loss)


@habit("batch norm with `load_state_dict()` after the optimizer is made", refused="before the loop")
def loaded_statistics(t):
    model = normed(t)

    def made(opt):
        state = {name: value.clone() for name, value in model.state_dict().items()}
        state["2.running_mean"] += 0.5
        state["2.running_var"] *= 2
        model.load_state_dict(state)
        t.did()

    train(t, model, made=made)


@habit("a buffer of the script's that counts, such as a moving average of the loss")
def own_buffer(t):
    model = t.net()
    model.register_buffer("seen", torch.zeros(()))

    def after(step):
        model.seen += 1

    train(t, model, after=after)


# Rates.


def cosine(inner):
    return torch.optim.lr_scheduler.CosineAnnealingLR(inner, STEPS)


def step_lr(inner):
    return torch.optim.lr_scheduler.StepLR(inner, 2, 0.5)


def scheduled(t, make_scheduler, model=None, make=sgd, *, calls=lambda step: True, **options):
    """scheduler.step() in the loop, as torch's scripts have it."""
    model = t.net() if model is None else model
    inner = make(model)
    scheduler = make_scheduler(inner)
    opt = t.optimizer(model, inner, scheduler=scheduler, **options)
    for step, batch in enumerate(t.batches(opt)):
        opt.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        opt.step(loss)
        if calls(step):
            scheduler.step()


@habit("`scheduler=`, with `scheduler.step()` after each step")
def scheduler_per_batch(t):
    scheduled(t, cosine)


@habit("`scheduler=`, without `scheduler.step()`: Holdfast calls it")
def scheduler_not_stepped(t):
    scheduled(t, cosine, calls=lambda step: t.plain)


@habit("`scheduler_every=3`, with `scheduler.step()` after each epoch of 3 steps")
def scheduler_per_epoch(t):
    scheduled(
        t,
        lambda inner: torch.optim.lr_scheduler.ExponentialLR(inner, 0.5),
        calls=lambda step: step % 3 == 2,
        scheduler_every=3,
    )


@habit("`scheduler.step()` once per epoch, without `scheduler_every=`", refused="interval")
def scheduler_per_epoch_untold(t):
    model = t.net()
    inner = sgd(model)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(inner, 0.5)
    opt = t.optimizer(model, inner, scheduler=scheduler)
    for step, batch in enumerate(t.batches(opt)):
        opt.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        opt.step(loss)
        if step % 3 == 2:
            scheduler.step()
            t.did()


@habit("`scheduler.step()` twice in a step", refused="interval")
def scheduler_twice(t):
    model = t.net()
    inner = sgd(model)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(inner, 0.9)
    opt = t.optimizer(model, inner, scheduler=scheduler)
    for batch in t.batches(opt):
        opt.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        opt.step(loss)
        scheduler.step()
        scheduler.step()
        t.did()


@habit("`scheduler.step()` twice in a step, then `break` and a second loop", refused="interval")
def scheduler_twice_and_break(t):
    model = t.net()
    inner = sgd(model)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(inner, 0.9)
    opt = t.optimizer(model, inner, scheduler=scheduler)
    for stop in (1, None):
        for step, batch in enumerate(t.batches(opt)):
            opt.zero_grad()
            loss = loss_of(model, batch)
            loss.backward()
            opt.step(loss)
            scheduler.step()
            if step == stop:
                scheduler.step()
                t.did()
                break


@habit("a scheduler that is not given to `Optimizer`", refused="pass it as the scheduler")
def scheduler_not_given(t):
    model = t.net()
    inner = sgd(model)
    scheduler = cosine(inner)
    t.did()
    opt = t.optimizer(model, inner)
    for batch in t.batches(opt):
        opt.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        opt.step(loss)
        scheduler.step()


@habit("a scheduler made after `Optimizer`", refused="rates")
def scheduler_made_later(t):
    model = t.net()
    inner = sgd(model)
    opt = t.optimizer(model, inner)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(inner, 0.5)
    for batch in t.batches(opt):
        opt.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        opt.step(loss)
        scheduler.step()
        t.did()


@habit("a second scheduler beside `scheduler=`", refused="rates")
def second_scheduler(t):
    model = t.net()
    inner = sgd(model)
    first = step_lr(inner)
    opt = t.optimizer(model, inner, scheduler=first)
    second = torch.optim.lr_scheduler.ExponentialLR(inner, 0.7)
    for batch in t.batches(opt):
        opt.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        opt.step(loss)
        first.step()
        second.step()
        t.did()


@habit("`LambdaLR`", refused="LambdaLR")
def lambda_lr(t):
    scheduled(t, lambda inner: torch.optim.lr_scheduler.LambdaLR(inner, lambda n: 0.9**n))


@habit("`ReduceLROnPlateau`", refused="ReduceLROnPlateau")
def plateau(t):
    scheduled(t, torch.optim.lr_scheduler.ReduceLROnPlateau)


@habit("a linear warm-up and a cosine: `SequentialLR`")
def sequential(t):
    scheduled(
        t,
        lambda inner: torch.optim.lr_scheduler.SequentialLR(
            inner,
            [
                torch.optim.lr_scheduler.LinearLR(inner, 0.25, 1.0, 2),
                torch.optim.lr_scheduler.CosineAnnealingLR(inner, STEPS - 2),
            ],
            milestones=[2],
        ),
    )


@habit("a rate written into `param_groups`", refused="rates")
def written_rate(t):
    model = t.net()

    def loop(opt):
        def before(step):
            if step == 2:
                opt.param_groups[0]["lr"] = 0.01
                t.did()

        return before

    model = t.net()
    opt = t.optimizer(model, sgd(model))
    before = loop(opt)
    for step, batch in enumerate(t.batches(opt)):
        before(step)
        opt.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        opt.step(loss)


@habit(
    "a rate written into `param_groups` of torch's optimizer, beside `scheduler=`", refused="rates"
)
def written_rate_with_scheduler(t):
    model = t.net()
    inner = sgd(model)
    scheduler = step_lr(inner)
    opt = t.optimizer(model, inner, scheduler=scheduler)
    for step, batch in enumerate(t.batches(opt)):
        if step == 2:
            inner.param_groups[0]["lr"] = 0.01
            t.did()
        opt.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        opt.step(loss)
        scheduler.step()


@habit("a warm-up by hand, written into `param_groups`", refused="rates")
def warm_up_by_hand(t):
    model = t.net()
    opt = t.optimizer(model, sgd(model))
    for step, batch in enumerate(t.batches(opt)):
        for group in opt.param_groups:
            group["lr"] = 0.1 * (step + 1) / STEPS
        t.did()
        opt.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        opt.step(loss)


@habit("a rate written between `Optimizer` and the loop", refused="rates")
def rate_before_loop(t):
    model = t.net()

    def made(opt):
        opt.param_groups[0]["lr"] = 0.01
        t.did()

    train(t, model, made=made)


@habit("a momentum or weight decay written into `param_groups`", refused="rates")
def written_decay(t):
    model = t.net()
    inner = sgd(model)
    opt = t.optimizer(model, inner)
    for step, batch in enumerate(t.batches(opt)):
        if step == 2:
            inner.param_groups[0]["weight_decay"] = 0.1
            t.did()
        opt.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        opt.step(loss)


@habit("another optimizer option written, `nesterov`", refused="rates")
def written_nesterov(t):
    model = t.net()
    inner = sgd(model)
    opt = t.optimizer(model, inner)
    for step, batch in enumerate(t.batches(opt)):
        if step == 2:
            inner.param_groups[0]["nesterov"] = True
            t.did()
        opt.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        opt.step(loss)


def in_groups(first, second, make=torch.optim.SGD, **more):
    def groups(model):
        return make(
            [
                {"params": model[0].parameters(), **first},
                {"params": model[-1].parameters(), **second},
            ],
            **more,
        )

    return groups


@habit("parameter groups with rates of their own")
def groups(t):
    train(t, make=in_groups({"lr": 0.01}, {"lr": 0.2, "weight_decay": 0.1}, lr=0.1, momentum=0.9))


@habit("a parameter group with `lr=0`")
def group_without_rate(t):
    train(t, make=in_groups({"lr": 0.0}, {"lr": 0.2}, lr=0.1, momentum=0.9))


@habit("a parameter group with `lr=0` and a cosine")
def group_without_rate_and_cosine(t):
    scheduled(t, cosine, make=in_groups({"lr": 0.0}, {"lr": 0.2}, lr=0.1, momentum=0.9))


@habit("a parameter group with `lr=0` and other schedulers")
def group_without_rate_and_steps(t):
    scheduled(t, step_lr, make=in_groups({"lr": 0.0}, {"lr": 0.02}, torch.optim.Adam, lr=0.1))


@habit("a parameter group with `lr=0` and a linear warm-up")
def group_without_rate_and_warmup(t):
    scheduled(
        t,
        lambda inner: torch.optim.lr_scheduler.LinearLR(inner, 0.25, 1.0, 3),
        make=in_groups({"lr": 0.0}, {"lr": 0.2}, lr=0.1),
    )


@habit("`lr=0` for the whole optimizer", same=True)
def no_rate(t):
    train(t, make=lambda m: sgd(m, lr=0.0))


@habit("a learning rate that is a tensor", refused="lr is a tensor")
def tensor_rate(t):
    train(t, make=lambda m: torch.optim.Adam(m.parameters(), lr=torch.tensor(0.01)))


@habit("one group removed from `param_groups`", refused="groups")
def removed_group(t):
    model = t.net()
    inner = in_groups({}, {}, lr=0.1)(model)
    opt = t.optimizer(model, inner)
    for step, batch in enumerate(t.batches(opt)):
        if step == 2:
            inner.param_groups.pop()
            t.did()
        opt.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        opt.step(loss)


@habit("a parameter taken out of its group", refused="groups")
def removed_parameter(t):
    model = t.net()
    inner = sgd(model)
    opt = t.optimizer(model, inner)
    for step, batch in enumerate(t.batches(opt)):
        if step == 2:
            inner.param_groups[0]["params"].pop()
            t.did()
        opt.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        opt.step(loss)


# Optimizers.


@habit("`foreach=True`", overlap=(False,))
def foreach(t):
    train(t, make=lambda m: adam(m, foreach=True))


@habit("`fused=True`", overlap=(False,))
def fused(t):
    train(t, make=lambda m: adam(m, fused=True))


@habit("`maximize=True`", refused="maximize", overlap=(False,))
def maximize(t):
    train(t, make=lambda m: sgd(m, maximize=True))


@habit("`amsgrad=True`", refused="amsgrad", overlap=(False,))
def amsgrad(t):
    train(t, make=lambda m: adam(m, amsgrad=True))


@habit("`dampening` with a momentum", refused="dampening", overlap=(False,))
def dampening(t):
    train(t, make=lambda m: sgd(m, dampening=0.5))


@habit(
    "optimizers without a rule on the ps, such as `Adadelta`", refused="Adadelta", overlap=(False,)
)
def adadelta(t):
    train(t, make=lambda m: torch.optim.Adadelta(m.parameters()))


@habit("a subclass of an optimizer", refused="Own", overlap=(False,))
def subclass(t):
    class Own(torch.optim.SGD):
        pass

    train(t, make=lambda m: Own(m.parameters(), lr=0.1))


@habit("AdamW with Nesterov's neighbours: RMSprop, centered", overlap=(False,))
def rmsprop(t):
    train(t, make=lambda m: torch.optim.RMSprop(m.parameters(), lr=0.001, centered=True))


@habit("an optimizer that has already made steps", refused="already", overlap=(False,))
def used_optimizer(t):
    model = t.net()
    inner = sgd(model)
    loss_of(model, (torch.ones(2, INPUTS), torch.tensor([0, 1]))).backward()
    inner.step()
    train(t, model, lambda m: inner)


@habit(
    "`optimizer.load_state_dict()` of torch's optimizer, before `Optimizer`",
    refused="already",
    overlap=(False,),
)
def loaded_optimizer(t):
    model = t.net()
    first = sgd(model)
    loss_of(model, (torch.ones(2, INPUTS), torch.tensor([0, 1]))).backward()
    first.step()
    inner = sgd(model)
    inner.load_state_dict(first.state_dict())
    train(t, model, lambda m: inner)


@habit("`load_state_dict()` of `Optimizer`", refused="checkpoint", overlap=(False,))
def loaded_state(t):
    model = t.net()

    def made(opt):
        t.did()
        opt.load_state_dict(opt.state_dict())

    train(t, model, made=made)


@habit("`step()` of torch's own optimizer instead of `opt.step()`", refused="no step")
def inner_step(t):
    model = t.net()
    inner = sgd(model)
    opt = t.optimizer(model, inner)
    for batch in t.batches(opt):
        inner.zero_grad()
        loss_of(model, batch).backward()
        t.did()
        inner.step()


@habit("`step()` of torch's own optimizer beside `opt.step()`", refused="written")
def both_steps(t):
    model = t.net()
    inner = sgd(model)
    opt = t.optimizer(model, inner)
    for batch in t.batches(opt):
        inner.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        t.did()
        inner.step()
        opt.step(loss)


@habit(
    "a second optimizer of torch for the same parameters (two optimizers by turns)",
    refused="written",
)
def other_optimizer(t):
    model = t.net()
    opt = t.optimizer(model, sgd(model))
    other = torch.optim.SGD(model[0].parameters(), lr=0.05)
    for step, batch in enumerate(t.batches(opt)):
        opt.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        if step == 2:
            other.step()
            t.did()
        opt.step(loss)


@habit("`opt.state` written or read, as by scripts that reset momentum", refused="state")
def reset_state(t):
    model = t.net()
    opt = t.optimizer(model, sgd(model))
    for step, batch in enumerate(t.batches(opt)):
        if step == 3:
            t.did()
            opt.state.clear()
        opt.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        opt.step(loss)


# Copies and wrappers.


@habit("a moving average of the weights in a copy of the model", big=True)
def ema(t):
    model = t.net()
    average = copy.deepcopy(model)

    def after(step):
        with torch.no_grad():
            for kept, p in zip(average.parameters(), model.parameters(), strict=True):
                kept.lerp_(p, 0.1)

    train(t, model, after=after)
    t.model = average


@habit("weights swapped with a moving average for an evaluation, and back")
def swapped(t):
    model = t.net()
    average = copy.deepcopy(model)

    def after(step):
        kept = copy.deepcopy(model.state_dict())
        model.load_state_dict(average.state_dict())
        model(torch.ones(1, INPUTS))
        model.load_state_dict(kept)

    train(t, model, after=after)


@habit("`torch.optim.swa_utils.AveragedModel`")
def averaged_model(t):
    model = t.net()
    average = torch.optim.swa_utils.AveragedModel(model)
    train(t, model, after=lambda step: average.update_parameters(model))
    t.model = average


@habit("`copy.deepcopy()` of the model in the loop")
def copied(t):
    model = t.net()
    kept = []
    train(t, model, after=lambda step: kept.append(copy.deepcopy(model)))
    t.model = kept[-1]


@habit("`copy.deepcopy()` of the model, then trained in its place", same=True)
def trained_copy(t):
    # torch's optimizer has the original's parameters: nothing trains.
    model = t.net()
    other = copy.deepcopy(model)
    inner = sgd(model)
    opt = t.optimizer(model, inner)
    for batch in t.batches(opt):
        opt.zero_grad()
        loss_of(other, batch).backward()
        opt.step()


@habit("`torch.compile()` of the model before the optimizer", workers=(1,))
def compiled(t):
    model = torch.compile(t.net(), backend="eager")
    train(t, model)


@habit("`torch.compile()` of the model after the optimizer is made", workers=(1,))
def compiled_later(t):
    model = t.net()
    whole = torch.compile(model, backend="eager")
    train(t, model, loss=lambda m, b: loss_of(whole, b))


@habit("`model.compile()`, in place", workers=(1,))
def compiled_in_place(t):
    model = t.net()
    model.compile(backend="eager")
    train(t, model)


@habit("a wrapper with another prefix, such as `DataParallel`")
def wrapped(t):
    class Wrapper(torch.nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module

        def forward(self, x):
            return self.module(x)

    model = Wrapper(t.net())
    train(t, model)


@habit("an optimizer for the wrapped model, and the loop with the wrapper")
def wrapped_outside(t):
    model = t.net()
    whole = torch.nn.DataParallel(model)
    train(t, model, loss=lambda m, b: loss_of(whole, b))


@habit("activation checkpointing")
def checkpointed(t):
    from torch.utils.checkpoint import checkpoint

    def loss(model, batch):
        hidden = checkpoint(model[0], batch[0], use_reentrant=False)
        return functional.cross_entropy(model[2](model[1](hidden)), batch[1])

    train(t, loss=loss)


@habit("reentrant activation checkpointing")
def checkpointed_reentrant(t):
    from torch.utils.checkpoint import checkpoint

    def loss(model, batch):
        x = batch[0].clone().requires_grad_()
        hidden = checkpoint(model[0], x, use_reentrant=True)
        return functional.cross_entropy(model[2](model[1](hidden)), batch[1])

    train(t, loss=loss)


@habit("a backward pass in another thread", big=True)
def other_thread(t):
    import threading

    model = t.net()
    opt = t.optimizer(model, sgd(model))
    for batch in t.batches(opt):
        opt.zero_grad()
        loss = loss_of(model, batch)
        thread = threading.Thread(target=loss.backward)
        thread.start()
        thread.join()
        opt.step(loss)


# Random numbers.


@habit("dropout")
def dropout(t):
    train(t, t.net(torch.nn.Dropout(0.5)))


@habit("mixup with `np.random`")
def mixup(t):
    def loss(model, batch):
        x, y = batch
        share = float(np.random.beta(0.4, 0.4))
        order = torch.from_numpy(np.random.permutation(len(x)))
        output = model(share * x + (1 - share) * x[order])
        return share * functional.cross_entropy(output, y) + (1 - share) * functional.cross_entropy(
            output, y[order]
        )

    train(t, loss=loss)


@habit("`random` in the loop: a layer dropped at random")
def random_module(t):
    def loss(model, batch):
        factor = 1.0 if random.random() < 0.5 else 0.5
        return factor * loss_of(model, batch)

    train(t, loss=loss)


@habit("`torch.manual_seed()` in the loop")
def seeded_in_loop(t):
    train(t, t.net(torch.nn.Dropout(0.5)), before=lambda step: torch.manual_seed(step))


# Loops.


@habit("`break`, and a second loop that goes on")
def broken(t):
    model = t.net()
    opt = t.optimizer(model, sgd(model))
    for stop in (2, None):
        for step, batch in enumerate(t.batches(opt)):
            if step == stop:
                break
            opt.zero_grad()
            loss = loss_of(model, batch)
            loss.backward()
            opt.step(loss)


@habit("`break` after the backward pass, and a second loop that goes on", big=True)
def broken_after_backward(t):
    model = t.net()
    opt = t.optimizer(model, sgd(model))
    for stop in (2, None):
        for step, batch in enumerate(t.batches(opt)):
            opt.zero_grad()
            loss = loss_of(model, batch)
            loss.backward()
            if step == stop:
                break
            opt.step(loss)


@habit("an exception in the body that is caught outside, and a second loop")
def caught(t):
    model = t.net()
    opt = t.optimizer(model, sgd(model))
    failed = False
    while True:
        try:
            for step, batch in enumerate(t.batches(opt)):
                opt.zero_grad()
                loss = loss_of(model, batch)
                loss.backward()
                if step == 2 and not failed:
                    failed = True
                    raise ValueError("a shape is wrong")
                opt.step(loss)
            break
        except ValueError:
            pass


def interrupted_loop(t, model, lines, graded=nothing):
    """Ctrl-C at these numbers of lines of Holdfast's code; the loop is entered again."""
    opt = t.optimizer(model, sgd(model))
    lines = list(lines)
    while True:
        batches = t.batches(opt)
        try:
            for batch in batches:
                with t.interrupted(lines.pop(0)) if lines else contextlib.nullcontext():
                    opt.zero_grad()
                    loss = loss_of(model, batch)
                    loss.backward()
                    graded(0)
                    opt.step(loss)
            break
        except KeyboardInterrupt:
            batches.close()
            gc.collect()


@habit("Ctrl-C early in a turn, and the loop is entered again", workers=(1, 2), big=True)
def interrupted_early(t):
    interrupted_loop(t, t.net(), range(0, 40, 3))


@habit("Ctrl-C in `step()`, and the loop is entered again", workers=(1, 2), big=True)
def interrupted_step(t):
    interrupted_loop(t, t.net(), range(40, 200, 7))


@habit("Ctrl-C in many lines, and the loop is entered again", workers=(1,))
def interrupted_anywhere(t):
    interrupted_loop(t, t.net(), range(1, 260, 5))


@habit("Ctrl-C in the body of the loop, and the loop is entered again", big=True)
def interrupted_body(t):
    model = t.net()
    opt = t.optimizer(model, sgd(model))
    done = False
    while True:
        try:
            for step, batch in enumerate(t.batches(opt)):
                opt.zero_grad()
                loss = loss_of(model, batch)
                loss.backward()
                if step == 3 and not done:
                    done = True
                    raise KeyboardInterrupt
                opt.step(loss)
            break
        except KeyboardInterrupt:
            pass


@habit("`step()` twice for a batch", refused="two steps")
def stepped_twice(t):
    model = t.net()
    opt = t.optimizer(model, sgd(model))
    for batch in t.batches(opt):
        opt.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        opt.step(loss)
        t.did()
        opt.step(loss)


@habit("a batch left out with `continue`", refused="no step")
def continued(t):
    model = t.net()
    opt = t.optimizer(model, sgd(model))
    for step, batch in enumerate(t.batches(opt)):
        if step == 2:
            t.did()
            continue
        opt.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        opt.step(loss)


@habit("`examples=`, weights of examples")
def weighted(t):
    model = t.net()
    opt = t.optimizer(model, sgd(model))
    for batch in t.batches(opt):
        opt.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        opt.step(loss, examples=1 + 2 * t.rank)


@habit("`examples=np.int64(4)`")
def weighted_by_numpy(t):
    model = t.net()
    opt = t.optimizer(model, sgd(model))
    for batch in t.batches(opt):
        opt.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        t.did()
        opt.step(loss, examples=np.int64(4))


for _value, _name in (
    (2.5, "fraction"),
    (-1, "negative"),
    (2**64 + 3, "huge"),
    (float("nan"), "nan"),
    ("3", "text"),
):

    def _weighted(t, value=_value):
        model = t.net()
        opt = t.optimizer(model, sgd(model))
        for batch in t.batches(opt):
            opt.zero_grad()
            loss = loss_of(model, batch)
            loss.backward()
            t.did()
            opt.step(loss, examples=value if not t.plain else 1)

    _weighted.__name__ = f"weighted_by_{_name}"
    habit(f"`examples={_value!r}`", refused="examples", overlap=(False,))(_weighted)


@habit("a refused `examples=`, caught, and the step made after all", big=True)
def recovered_examples(t):
    model = t.net()
    opt = t.optimizer(model, sgd(model))
    for batch in t.batches(opt):
        opt.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        if not t.plain:
            try:
                opt.step(loss, examples=-1)
            except (ValueError, TypeError):
                pass
            else:
                raise AssertionError("it was not refused")
        opt.step(loss)


@habit("steps whose loss is not finite left out by hand", refused="no step")
def not_finite_by_hand(t):
    model = t.net()
    opt = t.optimizer(model, sgd(model))
    for step, batch in enumerate(t.batches(opt)):
        opt.zero_grad()
        loss = loss_of(model, batch)
        if step == 2:
            loss = loss * float("nan")
            t.did()
        if not torch.isfinite(loss):
            continue
        loss.backward()
        opt.step(loss)


@habit("a loss that is NaN: PyTorch's parameters become NaN, and Holdfast's step changes nothing")
def not_finite_loss(t):
    model = t.net()
    opt = t.optimizer(model, sgd(model, momentum=0.0))
    for step, batch in enumerate(t.batches(opt)):
        opt.zero_grad()
        loss = loss_of(model, batch)
        if step == 2:
            loss = loss * float("nan")
        loss.backward()
        # What Holdfast does: see docs/python/torch.md.
        if t.plain and step == 2:
            continue
        opt.step(loss)


@habit("one gradient that is infinite", refused=None)
def infinite_gradient(t):
    model = t.net()
    opt = t.optimizer(model, sgd(model, momentum=0.0))
    for step, batch in enumerate(t.batches(opt)):
        opt.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        if step == 2:
            model[0].weight.grad[0, 0] = float("inf")
            t.did()
            if t.plain:
                continue
        opt.step(loss)


@habit("`torch.set_default_dtype(torch.float64)` with a float32 model")
def default_dtype(t):
    model = t.net()
    data = t.data()
    torch.set_default_dtype(torch.float64)
    train(t, model, data=data)


@habit('`torch.set_default_device("meta")` after the model is made')
def default_device(t):
    model = normed(t)
    data = t.data()
    torch.set_default_device("meta")
    train(t, model, data=data, loss=loss_of)


@habit("`torch.inference_mode()` around an evaluation")
def inference(t):
    model = t.net()

    def after(step):
        with torch.inference_mode():
            model(torch.ones(1, INPUTS))

    train(t, model, after=after)


@habit("`torch.autograd.set_detect_anomaly(True)`")
def anomaly(t):
    torch.autograd.set_detect_anomaly(True)
    train(t)


@habit("the whole loop under `torch.set_grad_enabled(True)` and a step under `no_grad()`")
def step_without_grad(t):
    model = t.net()
    opt = t.optimizer(model, sgd(model))
    for batch in t.batches(opt):
        opt.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        with torch.no_grad():
            opt.step(loss)


# Trying them.


@dataclasses.dataclass
class Result:
    """What came of a habit in one variant: "" if what must come of it."""

    name: str
    variant: Variant
    wrong: str
    found: str
    log: str


class Trial:
    """Tries habits; the plain runs of a habit serve for all settings of overlap."""

    def __init__(self):
        self._runs = Runs()
        self._plain = {}

    def of(self, habit, variant):
        outcomes = []
        try:
            outcomes = self._runs.holdfast(habit.script, variant)
            wrong, found = self._judge(habit, variant, outcomes)
        except Exception as error:
            wrong = found = f"{type(error).__name__}: {error}"
        log = "\n".join(outcome.log + outcome.trace for outcome in outcomes)
        return Result(habit.name, variant, wrong, found, log)

    def _reference(self, habit, variant):
        key = (habit.name, variant.workers, variant.big)
        if key not in self._plain:
            self._plain = {key: self._runs.plain(habit.script, variant)}
        return self._plain[key]

    def _judge(self, habit, variant, outcomes):
        """What is wrong, and what was found."""
        expected = habit.pattern
        errors = [outcome for outcome in outcomes if outcome.error]
        if errors:
            own = [outcome for outcome in errors if not outcome.told] or errors
            found = f"refused: {own[0].error}"
            for outcome in own:
                if expected is None:
                    return found, found
                if not re.search(expected, outcome.error):
                    return f"refused in other words than /{expected}/: {outcome.error}", found
                if outcome.pushed:
                    return f"{outcome.pushed}, then {found}", found
            return "", found
        far = ""
        for rank, reference in enumerate(self._reference(habit, variant)):
            if reference.error:
                far = f"plain PyTorch failed: {reference.error}\n{reference.trace}"
                break
            changed = any(
                name not in reference.first
                or value.shape != reference.first[name].shape
                or not np.array_equal(value, reference.first[name])
                for name, value in reference.last.items()
            )
            if changed == habit.same:
                far = "nothing trained under PyTorch" if not changed else "something trained"
                break
            far = difference(reference, outcomes[rank])
            if far:
                break
        found = f"differs: {far}" if far else "equal"
        if expected is None:
            return far and found, found
        return f"not refused, /{expected}/; {found}", found


def _try(name, quick):
    [habit] = [each for each in HABITS if each.name == name]
    trial = Trial()
    return [
        trial.of(habit, variant)
        for variant in habit.variants()
        if not quick or variant.big or (variant.workers == 2) != variant.overlap
    ]


def tried(names, quick=False):
    """The results of habits, two of which are tried at a time; a list for each."""
    with in_parallel() as pool:
        for future in [pool.submit(_try, name, quick) for name in names]:
            yield future.result()


MARKERS = ("<!-- begin: what is refused, as torch_habits.py prints it -->", "<!-- end -->")


def table():
    """The table of what is refused, for the documentation."""
    rows = ["| what a script does | instead |", "|---|---|"]
    rows += [f"| {refusal.does} | {refusal.instead} |" for refusal in REFUSALS.values()]
    return "\n".join(rows)


def main(arguments):
    if arguments == ["--table"]:
        print(table())
        return 0
    quick = "--quick" in arguments  # leaves half of the variants out
    names = [argument for argument in arguments if argument != "--quick"]
    began = time.monotonic()
    wrong = count = 0
    for results in tried([each.name for each in HABITS if not names or each.name in names], quick):
        lines = {}  # variants with the same result share a line
        for result in results:
            count += 1
            wrong += bool(result.wrong)
            mark = "WRONG" if result.wrong else "ok   "
            text = re.sub(r"127[.0-9]*:[0-9]*", "ADDRESS", result.wrong or result.found)
            key = mark, text if " differ" not in f" {text}" else re.sub("[0-9.e+-]+", "", text)
            lines.setdefault(key, [text]).append(str(result.variant))
            if names:
                print(result.log)
        for (mark, _), (text, *variants) in lines.items():
            print(f"{mark} {results[0].name} [{', '.join(variants)}]: {text}", flush=True)
    print(f"{count} runs, {wrong} wrong, {time.monotonic() - began:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
