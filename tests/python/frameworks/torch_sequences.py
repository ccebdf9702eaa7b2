# SPDX-License-Identifier: Apache-2.0

"""Random sequences of what scripts do, under plain PyTorch and under Holdfast.

A sequence is a model, an optimizer, a way to run them (see torch_sides.py) and operations at places
of a training loop: on the model, its gradients, the optimizer, the scheduler and the loop itself.
The parameters must be equal in the end, or the script refused because of one of its operations. A
sequence that ends otherwise is shrunk to the operations that it takes.

    python torch_sequences.py --sequences=1000 --seed=N
    python torch_sequences.py --only=SEED               # one of them, with its output

Sequence i of seed N is that of seed N + i, so each can be run again by itself.
"""

import argparse
import contextlib
import dataclasses
import gc
import random
import re
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional
from torch_habits import REFUSALS
from torch_sides import INPUTS, SIZE, Runs, Variant, difference, in_parallel

import holdfast

STEPS = 5
EXAMPLES = 60
# Of the loop.
MADE, BEFORE, GRADED, AFTER, LOOP = "made", "before", "graded", "after", "loop"


@dataclasses.dataclass(frozen=True)
class Operation:
    """What a script does at a place of its loop.

    Attributes:
        step: Number of the batch.
        place: When: before the loop, before the forward pass, after the backward pass, after the
            step; or what happens to the loop.
        name: Key of KINDS.
        value: Its argument.
    """

    step: int
    place: str
    name: str
    value: Any = None

    def __str__(self):
        argument = "" if self.value is None else repr(self.value)
        return f"{self.step}.{self.place}: {self.name}({argument})"


@dataclasses.dataclass(frozen=True)
class Sequence:
    seed: int
    variant: Variant
    model: str
    optimizer: str
    scheduler: str = ""
    accumulate: int = 1
    scaler: str = ""
    operations: tuple = ()

    def __str__(self):
        parts = [str(self.variant), self.model, self.optimizer]
        parts += [self.scheduler] if self.scheduler else []
        parts += [f"accumulate={self.accumulate}"] if self.accumulate > 1 else []
        parts += [f"scaler: {self.scaler}"] if self.scaler else []
        return "; ".join([", ".join(parts), *map(str, self.operations)])


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of operation.

    Attributes:
        do: Called with the world and the value.
        places: Where it may stand.
        draw: Draws a value.
        weight: How often it is drawn.
        refused: A regular expression for its refusal; None if it must train as PyTorch does.
        lasts: Whether it outlasts the turn, so that it is not done again with a batch that is
            handed out again.
    """

    do: Callable
    places: tuple
    draw: Callable = lambda random: None
    weight: float = 1.0
    refused: str | None = None
    lasts: bool = True


class World:
    """What the operations act on."""

    def __init__(self, side, sequence):
        self.side = side
        self.model = MODELS[sequence.model](side)
        self.inner = OPTIMIZERS[sequence.optimizer](self.model)
        self.scheduler = None
        options = {"accumulate": sequence.accumulate} if sequence.accumulate > 1 else {}
        if sequence.scheduler:
            self.scheduler = SCHEDULERS[sequence.scheduler](self.inner)
            options["scheduler"] = self.scheduler
        self.opt = side.optimizer(self.model, self.inner, **options)
        self.forward = self.model
        self.scaler = None
        if sequence.scaler:
            # The first one overflows.
            scale = 2.0**127 if sequence.scaler == "overflow" else 1024.0
            self.scaler = torch.amp.GradScaler(
                "cpu", init_scale=scale, backoff_factor=2.0**-117, growth_interval=2
            )
        self.unscales = sequence.scaler == "unscale"
        self.batch = None

    def layer(self, index):
        layers = [layer for layer in self.model if isinstance(layer, torch.nn.Linear)]
        return layers[index % len(layers)]

    def trained(self):
        return [p for p in self.model.parameters() if p.grad is not None]

    def loss(self):
        x, y = self.batch
        return functional.cross_entropy(self.forward(x), y)


MODELS = {
    "net": lambda side: side.net(),
    "dropout": lambda side: side.net(torch.nn.Dropout(0.25)),
    "batch norm": lambda side: side.net(torch.nn.BatchNorm1d(1024 if side.variant.big else 5)),
}

OPTIMIZERS = {
    "SGD": lambda model: torch.optim.SGD(model.parameters(), lr=0.1),
    "momentum": lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
    "nesterov": lambda model: torch.optim.SGD(
        model.parameters(), lr=0.05, momentum=0.8, nesterov=True, weight_decay=0.01
    ),
    # A greater epsilon, so that gradients that are 0 but for rounding change little.
    "Adam": lambda model: torch.optim.Adam(model.parameters(), lr=0.01, eps=1e-3),
    "AdamW": lambda model: torch.optim.AdamW(
        model.parameters(), lr=0.01, eps=1e-3, weight_decay=0.1
    ),
    "groups": lambda model: torch.optim.SGD(
        [
            {"params": model[0].parameters(), "lr": 0.0},
            {"params": [p for layer in list(model)[1:] for p in layer.parameters()]},
        ],
        lr=0.1,
        momentum=0.5,
    ),
}

SCHEDULERS = {
    "StepLR": lambda inner: torch.optim.lr_scheduler.StepLR(inner, 2, 0.5),
    "cosine": lambda inner: torch.optim.lr_scheduler.CosineAnnealingLR(inner, STEPS),
}


# Operations.


def freeze(world, index):
    # Something must be left to train.
    if index % 2 == 0:
        world.layer(0).requires_grad_(False)


def unfreeze(world, index):
    world.layer(index).requires_grad_(True)


def load(world, seed):
    generator = torch.Generator().manual_seed(seed)
    state = {
        name: value + 0.1 * torch.rand(value.shape, generator=generator)
        if torch.is_floating_point(value)
        else value
        for name, value in world.model.state_dict().items()
    }
    world.model.load_state_dict(state)


def scale_weights(world, factor):
    for p in world.layer(1).parameters():
        p.data.mul_(factor)


@torch.no_grad()
def clamp_weights(world, most):
    for p in world.model.parameters():
        p.clamp_(-most, most)


def write_element(world, value):
    world.layer(0).weight.detach().numpy()[0, 0] = value


@torch.no_grad()
def write_and_restore(world, _):
    p = world.layer(0).weight
    kept = p.clone()
    p.zero_()
    p.copy_(kept)


def other_memory(world, factor):
    p = world.layer(0).weight
    p.data = p.data * factor


def move(world, how):
    if how == "share_memory":
        world.model.share_memory()
    elif how == "double":
        world.model.double().float()
    else:
        for p in world.model.parameters():
            p.data = p.data.clone()


def compile_model(world, _):
    world.forward = torch.compile(world.model, backend="eager")


def reset_statistics(world, _):
    for module in world.model:
        if isinstance(module, torch.nn.BatchNorm1d):
            module.reset_running_stats()


def set_training(world, on):
    world.model.train(on)


def evaluate(world, _):
    training = world.model.training
    world.model.eval()
    with torch.no_grad():
        world.model(torch.ones(1, INPUTS))
    world.model.train(training)


def scale_gradients(world, factor):
    for p in world.trained():
        p.grad.mul_(factor)


def scale_gradient_data(world, factor):
    for p in world.trained():
        p.grad.data.mul_(factor)


def clamp_gradients(world, most):
    for p in world.trained():
        p.grad.numpy().clip(-most, most, out=p.grad.numpy())


def replace_gradient(world, factor):
    for p in world.trained()[:2]:
        p.grad = p.grad * factor


def drop_gradient(world, index):
    for p in world.layer(index).parameters():
        p.grad = None


def zero_gradient(world, index):
    for p in world.layer(index).parameters():
        if p.grad is not None:
            p.grad.zero_()


def clip_norm(world, most):
    torch.nn.utils.clip_grad_norm_(world.model.parameters(), most)


def clip_value(world, most):
    torch.nn.utils.clip_grad_value_(world.model.parameters(), most)


def own_clip(world, most):
    world.opt.clip_grad_norm(most)


def backward_again(world, factor):
    backward(world, world.loss() * factor)


def write_rate(world, rate):
    world.inner.param_groups[-1]["lr"] = rate


def write_decay(world, decay):
    world.opt.param_groups[-1]["weight_decay"] = decay


def extra_scheduler_step(world, _):
    if world.scheduler is not None:
        world.scheduler.step()


def _refused(*keys):
    return "|".join(REFUSALS[key].pattern for key in keys)


ANYWHERE = (MADE, BEFORE, GRADED, AFTER)
# These end most sequences, so they are rare.
WRITES = {
    "places": ANYWHERE,
    "weight": 0.15,
    "refused": _refused("before the loop", "written"),
}
GRADIENTS = {"places": (GRADED,), "lasts": False}

KINDS = {
    "freeze": Kind(
        freeze,
        (MADE, BEFORE, AFTER),
        lambda r: r.randrange(2),
        weight=0.5,
        refused=_refused("no gradient"),
    ),
    "unfreeze": Kind(
        unfreeze,
        (MADE, BEFORE, AFTER),
        lambda r: r.randrange(2),
        weight=0.5,
        refused=_refused("no gradient"),
    ),
    "load": Kind(load, draw=lambda r: r.randrange(100), **WRITES),
    "scale_weights": Kind(scale_weights, draw=lambda r: r.choice((0.5, 0.9, 1.1)), **WRITES),
    "clamp_weights": Kind(clamp_weights, draw=lambda r: r.choice((0.1, 0.3, 10.0)), **WRITES),
    "write_element": Kind(write_element, draw=lambda r: r.choice((0.5, -0.25)), **WRITES),
    "other_memory": Kind(other_memory, draw=lambda r: r.choice((1.0, 1.0, 0.75)), **WRITES),
    "write_and_restore": Kind(write_and_restore, ANYWHERE),
    "move": Kind(
        move,
        ANYWHERE,
        lambda r: r.choice(("share_memory", "double", "clone")),
        weight=0.5,
        refused=_refused("moved"),
    ),
    "compile": Kind(compile_model, (MADE, BEFORE), weight=0.1),
    "reset_statistics": Kind(
        reset_statistics,
        (MADE, BEFORE, AFTER),
        weight=0.3,
        refused=_refused("before the loop"),
        lasts=False,  # the statistics of a batch that is handed out again are those before it
    ),
    "set_training": Kind(set_training, (BEFORE,), lambda r: r.random() < 0.5),
    "evaluate": Kind(evaluate, (BEFORE, GRADED, AFTER)),
    "scale_gradients": Kind(scale_gradients, draw=lambda r: r.choice((0.5, 2.0)), **GRADIENTS),
    "scale_gradient_data": Kind(
        scale_gradient_data, draw=lambda r: r.choice((0.5, 2.0)), **GRADIENTS
    ),
    "clamp_gradients": Kind(clamp_gradients, draw=lambda r: 0.02, **GRADIENTS),
    "replace_gradient": Kind(replace_gradient, draw=lambda r: 0.5, **GRADIENTS),
    "drop_gradient": Kind(
        drop_gradient,
        draw=lambda r: r.randrange(2),
        weight=0.3,
        refused=_refused("no gradient"),
        **GRADIENTS,
    ),
    "zero_gradient": Kind(zero_gradient, draw=lambda r: r.randrange(2), **GRADIENTS),
    "clip_norm": Kind(clip_norm, draw=lambda r: r.choice((0.05, 0.5)), **GRADIENTS),
    "clip_value": Kind(clip_value, draw=lambda r: 0.03, **GRADIENTS),
    "own_clip": Kind(
        own_clip,
        draw=lambda r: 0.1,
        weight=0.5,
        refused=_refused("clipped"),  # if an operation on gradients follows
        **GRADIENTS,
    ),
    "backward_again": Kind(backward_again, draw=lambda r: 0.5, weight=0.5, **GRADIENTS),
    "write_rate": Kind(
        write_rate, (BEFORE, AFTER), lambda r: 0.05, weight=0.1, refused=_refused("rates")
    ),
    "write_decay": Kind(
        write_decay, (MADE, BEFORE, AFTER), lambda r: 0.02, weight=0.1, refused=_refused("rates")
    ),
    "extra_scheduler_step": Kind(
        extra_scheduler_step,
        (BEFORE, AFTER),
        weight=0.1,
        refused=_refused("interval", "rates"),
    ),
    # What happens to the loop: a number of lines after which Ctrl-C arrives, or a break.
    "interrupt": Kind(None, (LOOP,), lambda r: r.randrange(400), weight=4.0),
    "break": Kind(None, (LOOP,), lambda r: r.choice(("early", "late")), weight=1.0),
}


def draw(seed):
    """The sequence of a seed."""
    r = random.Random(seed)
    big = r.random() < 0.08
    variant = Variant(r.choice((1, 1, 2)), r.random() < 0.5 or big, big)
    model = r.choice(("net", "net", "dropout", "batch norm"))
    operations = []
    names = list(KINDS)
    weights = [KINDS[name].weight for name in names]
    for name in r.choices(names, weights, k=r.randint(1, 8)):
        kind = KINDS[name]
        place = r.choice(kind.places)
        step = 0 if place == MADE else r.randrange(STEPS)
        operations.append(Operation(step, place, name, kind.draw(r)))
    scaler = r.choice(("",) * 12 + ("plain", "overflow", "unscale"))
    if scaler:
        # A scaler's unscale_() and step() are for once in a step.
        operations = [op for op in operations if op.place != LOOP or op.value == "late"]
    return Sequence(
        seed,
        variant,
        model,
        r.choice(list(OPTIMIZERS)),
        r.choice(("", "", *SCHEDULERS)),
        r.choice((1, 1, 1, 2)),
        scaler,
        tuple(operations),
    )


def script_of(sequence):
    """The training script."""

    def script(side):
        world = World(side, sequence)
        done = set()

        def do(place, step):
            for index, operation in enumerate(sequence.operations):
                if operation.place != place or operation.step != step or index in done:
                    continue
                kind = KINDS[operation.name]
                if kind.lasts:
                    done.add(index)
                kind.do(world, operation.value)
                if kind.refused is not None:
                    side.did(again=True)

        loop_operations = {}
        for operation in sequence.operations:
            if operation.place == LOOP:
                loop_operations.setdefault(operation.step, []).append(operation)
        # What the batch's examples say about its number.
        step_of = {}
        for step in range(STEPS):
            rows = holdfast.batch_indices(
                step * side.workers + side.rank, EXAMPLES, SIZE * sequence.accumulate, 0
            )
            for number in range(sequence.accumulate):
                key = tuple(rows[number * SIZE : (number + 1) * SIZE].tolist())
                step_of[key] = (step, number)
        x, y = side.data().tensors
        data = torch.utils.data.TensorDataset(x, y, torch.arange(EXAMPLES))

        do(MADE, 0)
        stepped = 0  # the first step whose operations after it have not been done
        ended = False
        while not ended:
            batches = side.batches(world.opt, data)
            expected = stepped
            try:
                while True:
                    happening = None
                    if loop_operations.get(expected):
                        happening = loop_operations[expected].pop()
                    interrupts = happening is not None and happening.name == "interrupt"
                    with (
                        side.interrupted(happening.value)
                        if interrupts
                        else contextlib.nullcontext()
                    ):
                        batch = next(batches, None)
                        if batch is None:
                            ended = True
                            break
                        step, number = step_of[tuple(batch[2].tolist())]
                        # After Ctrl-C in a step that counts.
                        while stepped < step:
                            finish(world, do, stepped)
                            stepped += 1
                        world.batch = batch[:2]
                        if number == 0:
                            do(BEFORE, step)
                        world.opt.zero_grad()
                        last = number == sequence.accumulate - 1
                        loss = world.loss()
                        backward(world, loss)
                        if last:
                            do(GRADED, step)
                        breaks = happening.value if happening and not interrupts else ""
                        if breaks == "early":
                            break
                        make_step(world, loss, last=last)
                    if last:
                        finish(world, do, step)
                        stepped = step + 1
                    expected = stepped
                    if breaks == "late":
                        break
            except KeyboardInterrupt:
                pass
            batches.close()
            gc.collect()
        while stepped < STEPS:
            finish(world, do, stepped)
            stepped += 1

    return script


def backward(world, loss):
    """A backward pass, with the scaler if there is one."""
    if world.scaler is not None:
        loss = world.scaler.scale(loss)
    loss.backward()


def make_step(world, loss, *, last):
    """A step, by the scaler if there is one."""
    if world.scaler is None:
        world.opt.step(loss)
    elif last:
        if world.unscales:
            world.scaler.unscale_(world.opt)
        world.scaler.step(world.opt)
        world.scaler.update()


def finish(world, do, step):
    """What comes after a step."""
    if world.scheduler is not None:
        world.scheduler.step()
    do(AFTER, step)


class Trial:
    def __init__(self):
        self._runs = Runs()
        self.refused = 0

    def of(self, sequence):
        """What is wrong with the sequence's outcome; "" if nothing is."""
        script = script_of(sequence)
        outcomes = self._runs.holdfast(script, sequence.variant, steps=STEPS)
        self.outcomes = outcomes
        refusals = [
            KINDS[operation.name].refused
            for operation in sequence.operations
            if KINDS[operation.name].refused is not None
        ]
        errors = [outcome for outcome in outcomes if outcome.error]
        if errors:
            for outcome in [each for each in errors if not each.told] or errors:
                if not any(re.search(refusal, outcome.error) for refusal in refusals):
                    return f"refused: {outcome.error}"
                # Zeros for a parameter that has had no gradient yet change nothing under Adam: what
                # is refused is the first gradient after them.
                if outcome.pushed and "has a gradient now" not in outcome.error:
                    return f"{outcome.pushed}, then refused: {outcome.error}"
            self.refused += 1
            return ""
        references = self._runs.plain(script, sequence.variant, steps=STEPS)
        for reference, outcome in zip(references, outcomes, strict=True):
            if reference.error:
                return f"plain PyTorch failed: {reference.error}\n{reference.trace}"
            far = difference(reference, outcome)
            if far:
                return f"differs: {far}"
        return ""

    def shrunk(self, sequence):
        """A sequence with fewer operations that is wrong, too."""
        changes = True
        while changes:
            changes = False
            for smaller in _smaller(sequence):
                if self.of(smaller):
                    sequence = smaller
                    changes = True
                    break
        return sequence


def _smaller(sequence):
    """Sequences that are simpler by one thing; what takes the most away comes first."""
    operations = sequence.operations
    half = len(operations) // 2
    if half > 1:
        yield dataclasses.replace(sequence, operations=operations[:half])
        yield dataclasses.replace(sequence, operations=operations[half:])
    for i in range(len(operations)):
        yield dataclasses.replace(sequence, operations=operations[:i] + operations[i + 1 :])
    variant = sequence.variant
    for simpler in (
        dataclasses.replace(variant, big=False),
        dataclasses.replace(variant, workers=1),
        dataclasses.replace(variant, overlap=False, big=False),
    ):
        if simpler != variant:
            yield dataclasses.replace(sequence, variant=simpler)
    for field, value in (
        ("accumulate", 1),
        ("scaler", ""),
        ("scheduler", ""),
        ("model", "net"),
        ("optimizer", "SGD"),
    ):
        if getattr(sequence, field) != value:
            yield dataclasses.replace(sequence, **{field: value})


@dataclasses.dataclass
class Result:
    """What came of a sequence, shrunk if it is wrong."""

    sequence: Sequence
    wrong: str
    refused: bool


def _try(seed, shrinks):
    trial = Trial()
    sequence = draw(seed)
    wrong = trial.of(sequence)
    refused = trial.refused > 0
    if wrong and shrinks:
        sequence = trial.shrunk(sequence)
        wrong = trial.of(sequence) or f"once: {wrong}"
    return Result(sequence, wrong, refused)


def tried(seeds, *, shrinks=True):
    """The results of seeds, two of which are tried at a time."""
    with in_parallel() as pool:
        for future in [pool.submit(_try, seed, shrinks) for seed in seeds]:
            yield future.result()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sequences", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int)
    parser.add_argument("--no_shrinking", action="store_true")
    arguments = parser.parse_args()
    trial = Trial()
    if arguments.only is not None:
        sequence = draw(arguments.only)
        print(sequence)
        wrong = trial.of(sequence)
        for outcome in trial.outcomes:
            print(outcome.log + outcome.trace)
        print(wrong or "as it should be")
        return 1 if wrong else 0
    began = time.monotonic()
    seeds = range(arguments.seed, arguments.seed + arguments.sequences)
    failed = []
    refused = 0
    for result in tried(seeds, shrinks=not arguments.no_shrinking):
        refused += result.refused
        if result.wrong:
            failed.append(result.sequence.seed)
            print(f"seed {result.sequence.seed}: {result.wrong}\n    {result.sequence}", flush=True)
    print(
        f"{arguments.sequences} sequences from seed {arguments.seed}: {len(failed)} wrong "
        f"{failed}, {refused} refused, {time.monotonic() - began:.0f} s"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
