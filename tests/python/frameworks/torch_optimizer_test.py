# SPDX-License-Identifier: Apache-2.0

"""holdfast.torch.Optimizer with one worker: the same arithmetic as plain PyTorch."""

import copy
import unittest
from unittest import mock

import numpy as np
import torch
from local_cluster import LocalCluster

import holdfast
import holdfast.torch
from holdfast.torch import _gradients

SIZE = 8
STEPS = 5


def mlp(seed=1):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3))


def examples(count=40, inputs=6, seed=2):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, inputs, generator=generator)
    return torch.utils.data.TensorDataset(x, torch.randint(3, (count,), generator=generator))


def sgd(model, lr=0.125, **more):
    return torch.optim.SGD(model.parameters(), lr=lr, **more)


def loss_of(model, batch):
    x, y = batch
    return torch.nn.functional.cross_entropy(model(x), y)


def pieces_of(data, size=SIZE, steps=STEPS, seed=0):
    """The batches that a single worker gets."""
    for batch in range(steps):
        rows = torch.from_numpy(holdfast.batch_indices(batch, len(data), size, seed))
        yield [tensor[rows] for tensor in data.tensors]


class OneWorker(unittest.TestCase):
    def make(self, model, optimizer=None, *, steps=STEPS, **options):
        """Creates an optimizer on a new cluster."""
        ps = self.enterContext(LocalCluster(2))
        cluster = self.enterContext(holdfast.connect(**ps.task()))
        optimizer = sgd(model) if optimizer is None else optimizer
        return holdfast.torch.Optimizer(model, optimizer, steps=steps, cluster=cluster, **options)

    def train(self, model, optimizer=None, *, data=None, size=SIZE, body=None, **options):
        opt = self.make(model, optimizer, **options)
        for batch in opt.batches(examples() if data is None else data, size):
            opt.zero_grad()
            loss = loss_of(model, batch)
            loss.backward()
            if body is not None:
                body(opt)
            opt.step(loss)
        return opt

    def train_alone(self, model, optimizer=None, *, data=None, size=SIZE, steps=STEPS, body=None):
        optimizer = sgd(model) if optimizer is None else optimizer
        for batch in pieces_of(examples() if data is None else data, size, steps):
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            if body is not None:
                body(model)
            optimizer.step()

    def assert_close(self, model, other, tolerance=1e-6):
        for (name, got), expected in zip(
            model.state_dict().items(), other.state_dict().values(), strict=True
        ):
            torch.testing.assert_close(
                got, expected, rtol=tolerance, atol=tolerance, msg=lambda m, n=name: f"{n}: {m}"
            )


class OptimizerTest(OneWorker):
    def test_is_pytorch_alone(self):
        model, alone = mlp(), mlp()
        self.train(model)
        self.train_alone(alone)
        self.assert_close(model, alone)
        self.assertFalse(torch.equal(model[0].weight, mlp()[0].weight))

    def test_values_come_in_place(self):
        model = mlp()
        addresses = [parameter.data_ptr() for parameter in model.parameters()]
        opt = self.train(model)
        self.assertEqual([p.data_ptr() for p in model.parameters()], addresses)
        for name, value in opt.cluster.pull().items():
            np.testing.assert_array_equal(model.state_dict()[name].numpy(), value)
        self.assertEqual(opt.cluster.status().examples, SIZE * STEPS)

    def test_parameters_may_get_other_memory(self):
        model, alone = mlp(), mlp()

        def move(opt):
            for parameter in model.parameters():
                parameter.data = parameter.data.clone()

        self.train(model, body=move)
        self.train_alone(alone)
        self.assert_close(model, alone)

    def test_autograd_sees_that_values_changed(self):
        model = mlp()
        opt = self.make(model)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            for batch in opt.batches(examples(), SIZE):
                loss = loss_of(model, batch)
                loss.backward(retain_graph=True)
                opt.step(loss)
                loss.backward()

    def test_overlap_changes_no_bit(self):
        digests = set()
        for overlap in (False, True):
            with LocalCluster(2) as ps, holdfast.connect(**ps.task()) as cluster:
                model = torch.nn.Sequential(
                    # 6 MB: more than a message.
                    torch.nn.Linear(1500, 1000), torch.nn.ReLU(), torch.nn.Linear(1000, 3)
                )
                torch.manual_seed(1)
                for parameter in model.parameters():
                    torch.nn.init.uniform_(parameter, -0.05, 0.05)
                opt = holdfast.torch.Optimizer(
                    model, sgd(model, momentum=0.5), steps=3, cluster=cluster, overlap=overlap
                )
                for batch in opt.batches(examples(inputs=1500), SIZE):
                    opt.zero_grad()
                    loss = loss_of(model, batch)
                    loss.backward()
                    norm = opt.clip_grad_norm(0.25)
                    self.assertGreater(norm, 0.25)
                    opt.step(loss)
                digests.add(holdfast.digest(cluster.pull()))
        self.assertEqual(len(digests), 1)

    def test_clips_as_pytorch(self):
        norms, alone_norms = [], []
        for overlap in (False, True):
            model, alone = mlp(), mlp()
            with self.subTest(overlap=overlap):
                self.train(
                    model,
                    overlap=overlap,
                    body=lambda opt: norms.append(opt.clip_grad_norm(0.25)),
                )
                self.train_alone(
                    alone,
                    body=lambda model: alone_norms.append(
                        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
                    ),
                )
                self.assert_close(model, alone)
        torch.testing.assert_close(norms, alone_norms)
        self.assertGreater(min(norms), 0.25)

    def test_gradients_may_change_after_they_were_sent(self):
        """What a script does to gradients counts, whether they are sent early or not."""

        def clip(model):
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)

        def data(model):
            for parameter in model.parameters():
                parameter.grad.data.clamp_(-0.01, 0.01)  # raises no version counter

        def replace(model):
            for parameter in model.parameters():
                parameter.grad = parameter.grad * 0.5

        def again(model):
            loss_of(model, examples()[:4]).backward()

        def once(model):
            # Only in one of the steps.
            if model[0].weight.grad.sum() > 0:
                model[0].weight.grad.zero_()

        for change in (clip, data, replace, again, once):
            for overlap in (False, True):
                with self.subTest(change=change.__name__, overlap=overlap):
                    model, alone = mlp(), mlp()
                    opt = self.train(model, overlap=overlap, body=lambda opt: change(model))  # noqa: B023
                    self.train_alone(alone, body=change)
                    self.assert_close(model, alone)
                    self.assertEqual(opt.cluster.outcomes().accepted, STEPS)
                    self.assertEqual(opt.cluster.status().examples, STEPS * SIZE)

    def test_clips_twice_as_pytorch(self):
        for second in (0.125, 10.0):
            with self.subTest(second=second):
                norms, alone_norms = [], []

                def body(model, clip, norms, second=second):
                    norms += [clip(0.25), clip(second)]

                model, alone = mlp(), mlp()
                self.train(model, body=lambda opt: body(model, opt.clip_grad_norm, norms))  # noqa: B023
                self.train_alone(
                    alone,
                    body=lambda model: body(
                        model,
                        lambda limit: torch.nn.utils.clip_grad_norm_(model.parameters(), limit),
                        alone_norms,  # noqa: B023
                    ),
                )
                self.assert_close(model, alone)
                torch.testing.assert_close(norms, alone_norms)

    def test_gradients_must_not_change_after_they_were_clipped_in_the_push(self):
        for overlap in (False, True):
            with self.subTest(overlap=overlap):
                model = mlp()

                def body(opt, model=model):
                    opt.clip_grad_norm(0.25)
                    model[0].weight.grad.data.mul_(2)

                with self.assertRaisesRegex(holdfast.Error, '"0.weight" was changed after .*clip'):
                    self.train(model, overlap=overlap, body=body)

    def test_accumulates(self):
        for overlap in (False, True):
            with self.subTest(overlap=overlap):
                model, alone = mlp(), mlp()
                sizes = []
                opt = self.make(model, overlap=overlap, accumulate=3)
                for batch in opt.batches(examples(), SIZE):
                    opt.zero_grad()
                    loss = loss_of(model, batch)
                    loss.backward()
                    opt.step(loss)
                    sizes.append(len(batch[1]))
                self.train_alone(alone, size=3 * SIZE)
                self.assert_close(model, alone)
                self.assertEqual(sizes, [SIZE] * 3 * STEPS)
                self.assertEqual(opt.cluster.status().examples, 3 * SIZE * STEPS)

    def test_accumulates_where_the_script_steps_once(self):
        model, alone = mlp(), mlp()
        opt = self.make(model, accumulate=2)
        for i, batch in enumerate(opt.batches(examples(), SIZE)):
            loss_of(model, batch).backward()
            if i % 2 == 1:
                opt.step()
                opt.zero_grad()
        self.train_alone(alone, size=2 * SIZE)
        self.assert_close(model, alone)
        self.assertIsNone(opt.cluster.status().train_loss)

    def test_loss_is_the_mean_of_the_passes(self):
        opt = self.make(mlp(), steps=1, accumulate=2)
        for i, _ in enumerate(opt.batches(examples(), SIZE)):
            opt.step(torch.tensor(1.0 + i))
        self.assertEqual(opt.cluster.status().train_loss, 1.5)

    def test_batch_norm(self):
        def net():
            torch.manual_seed(1)
            return torch.nn.Sequential(
                torch.nn.Linear(6, 4),
                torch.nn.BatchNorm1d(4),
                torch.nn.ReLU(),
                torch.nn.Linear(4, 3),
                torch.nn.BatchNorm1d(3, momentum=0.25, affine=False),
            )

        model, alone = net(), net()
        opt = self.train(model)
        self.train_alone(alone)
        # The gradients of biases before batch norm are only rounding errors.
        self.assert_close(model, alone, 1e-5)
        self.assertEqual(model[1].num_batches_tracked, STEPS)
        names = set(opt.cluster.pull())
        self.assertIn("1.running_mean", names)
        self.assertIn("4.running_var", names)
        self.assertNotIn("1.num_batches_tracked", names)

    def test_statistics_of_several_passes_and_of_none(self):
        for accumulate, training in ((3, True), (1, False)):
            with self.subTest(accumulate=accumulate):
                torch.manual_seed(1)
                model = torch.nn.Sequential(torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 3))
                model[0].running_mean.fill_(0.3)
                model.train(training)
                alone = copy.deepcopy(model)
                opt = self.make(model, sgd(model, lr=1e-30), accumulate=accumulate)
                for batch in opt.batches(examples(), SIZE):
                    opt.zero_grad()
                    loss_of(model, batch).backward()
                    opt.step()
                for batch in pieces_of(examples(), SIZE * accumulate):
                    for x in batch[0].split(SIZE):
                        alone(x)
                self.assert_close(model[0], alone[0])

    def test_half_precision(self):
        for dtype in (torch.bfloat16, torch.float16):
            with self.subTest(dtype=dtype):
                model = mlp().to(dtype)
                # A master copy in float32, as one would write it in PyTorch.
                masters = [p.detach().float().clone() for p in model.parameters()]
                alone = copy.deepcopy(model)
                data = examples()
                data.tensors = (data.tensors[0].to(dtype), data.tensors[1])
                opt = self.train(model, sgd(model, lr=0.001), data=data)
                for batch in pieces_of(data):
                    loss = loss_of(alone, batch)
                    gradients = torch.autograd.grad(loss, list(alone.parameters()))
                    with torch.no_grad():
                        for p, master, g in zip(
                            alone.parameters(), masters, gradients, strict=True
                        ):
                            master -= 0.001 * g.float()
                            p.copy_(master)
                for value, master in zip(opt.cluster.pull().values(), masters, strict=True):
                    torch.testing.assert_close(torch.tensor(value), master)
                self.assert_close(model, alone, 0)
                self.assertEqual(next(model.parameters()).dtype, dtype)

    def test_tied_parameters_are_one(self):
        def net():
            torch.manual_seed(1)
            model = torch.nn.Sequential(
                torch.nn.Linear(6, 6), torch.nn.Tanh(), torch.nn.Linear(6, 6)
            )
            model[2].weight = model[0].weight
            return model

        for overlap in (False, True):
            with self.subTest(overlap=overlap):
                model, alone = net(), net()
                opt = self.train(model, overlap=overlap)
                self.train_alone(alone)
                self.assert_close(model, alone)
                self.assertEqual(list(opt.cluster.pull()), ["0.weight", "0.bias", "2.bias"])
                self.assertIs(model[0].weight, model[2].weight)

    def test_parameters_without_gradient(self):
        def net():
            model = mlp()
            model.unused = torch.nn.Parameter(torch.ones(3))
            model.frozen = torch.nn.Parameter(torch.ones(4), requires_grad=False)
            return model

        class Trains(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.net = net()
                self.unused = self.net.unused

            def forward(self, x):
                return self.net[2](self.net[1](self.net[0](x)))

        for overlap in (False, True):
            with self.subTest(overlap=overlap):
                model = Trains()
                # Zeros count as a gradient: weight decay applies.
                opt = self.train(
                    model,
                    sgd(model, lr=0.5, weight_decay=0.5),
                    overlap=overlap,
                    steps=2,
                    missing_gradients="zeros",
                )
                torch.testing.assert_close(model.net.unused.data, torch.full((3,), 0.75**2))
                self.assertEqual(model.net.frozen.tolist(), [1] * 4)
                self.assertNotIn("net.frozen", opt.cluster.pull())

    def test_parameter_groups_have_their_rules(self):
        def groups(model):
            return torch.optim.SGD(
                [
                    {"params": model[0].parameters(), "lr": 0.5},
                    {"params": [model[2].weight], "weight_decay": 0.25},
                ],
                lr=0.125,
            )

        model, alone = mlp(), mlp()
        self.train(model, groups(model))
        self.train_alone(alone, groups(alone))
        self.assert_close(model, alone)
        # The parameter is in no group, so it does not change.
        self.assertTrue(torch.equal(model[2].bias, mlp()[2].bias))

    def test_a_gradient_that_is_not_finite_counts_nothing(self):
        model = mlp()
        opt = self.make(model, steps=2, overlap=True)
        for i, batch in enumerate(opt.batches(examples(), SIZE)):
            opt.zero_grad()
            loss = loss_of(model, batch)
            (loss * float("nan") if i == 0 else loss).backward()
            opt.clip_grad_norm(1.0)
            opt.step(loss)
        self.assertEqual(opt.cluster.outcomes().not_finite, 1)
        self.assertTrue(all(p.isfinite().all() for p in model.parameters()))

    def test_skip_and_break(self):
        model = mlp()
        opt = self.make(model, accumulate=2, steps=3)
        seen = 0
        for batch in opt.batches(examples(), SIZE):
            loss_of(model, batch).backward()
            break
        opt.zero_grad()
        for batch in opt.batches(examples(), SIZE):
            if seen == 0:
                opt.skip()
            else:
                loss_of(model, batch).backward()
                opt.step()
                opt.zero_grad()
            seen += 1
        self.assertEqual(seen, 1 + 2 + 2)
        self.assertEqual(opt.cluster.status().examples, 2 * 2 * SIZE)

    def test_finish(self):
        for accumulate in (1, 2):
            with self.subTest(accumulate=accumulate):
                model, alone = mlp(), mlp()
                opt = self.make(model, steps=1000, accumulate=accumulate)
                for number, batch in enumerate(opt.batches(examples(), SIZE // accumulate)):
                    if number == 3 * accumulate:
                        opt.finish()
                        continue
                    opt.zero_grad()
                    loss = loss_of(model, batch)
                    loss.backward()
                    opt.step(loss)
                self.train_alone(alone, steps=3)
                self.assert_close(model, alone)
                status = opt.cluster.status()
                self.assertEqual((status.phase, status.global_step), ("DONE", 3))

    def test_loss_scale(self):
        model, alone = mlp(), mlp()
        opt = self.make(model, loss_scale=holdfast.LossScale(initial=1024.0))
        for batch in opt.batches(examples(), SIZE):
            opt.zero_grad()
            loss = loss_of(model, batch)
            self.assertEqual(opt.loss_scale, 1024)
            (loss * opt.loss_scale).backward()
            opt.step(loss)
        self.train_alone(alone)
        self.assert_close(model, alone)

    def test_copies_from_a_gpu_are_waited_for(self):
        """In place of a GPU's copies, the test completes its own."""
        events = []

        class Event:
            def __init__(self, memory, gradient):
                self.copy = lambda: memory.copy_(gradient)
                self.seen = self.waited = 0
                memory.fill_(float("nan"))
                events.append(self)

            def query(self):
                # The second copy completes at once, the third at its second query.
                self.seen += 1
                done = events.index(self) % 4 == 1 or self.seen > 2
                if done:
                    self.copy()
                return done

            def synchronize(self):
                self.waited += 1
                self.copy()

        for overlap in (False, True):
            events.clear()
            model, alone = mlp(), mlp()
            with (
                self.subTest(overlap=overlap),
                mock.patch.multiple(
                    _gradients,
                    _is_on_gpu=lambda gradient: True,
                    _pinned_memory=torch.empty_like,
                    _start_copy=Event,
                ),
            ):
                opt = self.train(model, overlap=overlap)
                self.assertEqual(opt.cluster.outcomes().not_finite, 0)
            self.train_alone(alone)
            self.assert_close(model, alone)
            self.assertEqual(len(events), 4 * STEPS)
            self.assertGreater(sum(event.waited for event in events), 0)

    def test_state_and_groups_are_read(self):
        model = mlp()
        opt = self.make(model)
        self.assertEqual(opt.param_groups[0]["lr"], 0.125)
        self.assertEqual(opt.state_dict()["state"], {})
        self.assertEqual(opt.defaults["lr"], 0.125)
        with self.assertRaisesRegex(holdfast.Error, "resumes from its last checkpoint"):
            opt.load_state_dict(opt.state_dict())
        with self.assertRaisesRegex(holdfast.Error, "all groups before"):
            opt.add_param_group({"params": []})
        with self.assertRaisesRegex(holdfast.Error, "no current batch"):
            opt.step()
        for set_to_none in (False, True):
            model[0].weight.grad = torch.ones(5, 6)
            opt.zero_grad(set_to_none=set_to_none)
            if set_to_none:
                self.assertIsNone(model[0].weight.grad)
            else:
                self.assertEqual(model[0].weight.grad.abs().max(), 0)


class RefusalTest(OneWorker):
    """What is refused, and the error messages."""

    def body(self, body, error, **options):
        model = mlp()
        with self.assertRaisesRegex(holdfast.Error, error):
            self.train(model, body=lambda opt: body(model, opt), **options)

    def test_a_rate_that_is_written(self):
        def write(model, opt):
            opt.param_groups[0]["lr"] = 0.25

        self.body(write, r"param_groups\[0\]\['lr'\] was changed from 0.125 to 0.25.*scheduler=")

    def test_a_batch_that_is_not_answered(self):
        opt = self.make(mlp())
        with self.assertRaisesRegex(holdfast.Error, "batch 0 was neither pushed nor skipped"):
            for _ in opt.batches(examples(), SIZE):
                pass

    def refuse(self, kind, error, model, optimizer=None, **options):
        with self.assertRaisesRegex(kind, error):
            self.make(model, optimizer, **options)

    def test_models(self):
        self.refuse(TypeError, '"0.weight" has dtype torch.float64', mlp().double())
        other = mlp()
        self.refuse(ValueError, r"param_groups\[0\]\['params'\]\[0\] .* not a parameter", mlp(),
                    sgd(other))
        self.refuse(ValueError, '"0.weight" has no shape yet',
                    torch.nn.Sequential(torch.nn.LazyLinear(3)), sgd(other))
        self.refuse(ValueError, '"0" averages its statistics over all batches',
                    torch.nn.Sequential(torch.nn.BatchNorm1d(3, momentum=None)))
        frozen = mlp().requires_grad_(False)
        self.refuse(ValueError, "no parameter that requires a gradient", frozen)

    def test_sparse_gradients(self):
        model = torch.nn.Embedding(10, 3, sparse=True)
        for overlap in (False, True):
            opt = self.make(model, overlap=overlap)
            with self.assertRaisesRegex(TypeError, 'gradient of "weight" is sparse'):
                for _ in opt.batches(range(10), 2):
                    model(torch.tensor([1])).sum().backward()
                    opt.step()


if __name__ == "__main__":
    unittest.main()
