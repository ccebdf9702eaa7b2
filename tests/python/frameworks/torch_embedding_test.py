# SPDX-License-Identifier: Apache-2.0

"""holdfast.torch.Embedding and EmbeddingBag with one worker: the same arithmetic as torch's
own."""

import copy
import pickle
import unittest
from unittest import mock

import numpy as np
import torch
from local_cluster import LocalCluster, await_that

import holdfast
import holdfast.torch
from holdfast.torch import Embedding, EmbeddingBag

D = 3
IDS = 20
STEPS = 5
SGD = holdfast.Sgd(learning_rate=0.5)


def table(**more):
    options = {"max_rows_per_push": 64, "optimizer": SGD, **more}
    return holdfast.EmbeddingTable(D, holdfast.Normal(stddev=1.0), **options)


class OnACluster(unittest.TestCase):
    def make(self, model, optimizer=None, *, num_ps=2, steps=STEPS, flags=(), **options):
        self.ps = self.enterContext(LocalCluster(num_ps, flags=flags))
        self.cluster = self.enterContext(holdfast.connect(**self.ps.task()))
        return holdfast.torch.Optimizer(
            model, optimizer, steps=steps, cluster=self.cluster, **options
        )

    def rows(self, name, ids=range(IDS)):
        return torch.from_numpy(self.cluster.pull_rows({name: np.array(ids)})[name])

    def twin(self, module, kind, **options):
        """torch's own module, with the rows of our module."""
        return kind.from_pretrained(self.rows(module.name), freeze=False, **options)


def cases():
    """Cases of bags: name, input, offsets, and options of the module; the ids 3 and 7 occur
    often."""
    generator = torch.Generator().manual_seed(1)
    matrix = torch.randint(IDS, (6, 5), generator=generator)
    matrix[:, 1], matrix[::2, 3] = 3, 7
    flat = matrix.flatten()
    yield "matrix", matrix, None, {}
    yield "offsets", flat, torch.tensor([0, 4, 4, 11, 30]), {}  # two of them are empty
    yield "last offset", flat, torch.tensor([0, 4, 12, 30]), {"include_last_offset": True}
    yield "padding", matrix, None, {"padding_idx": 3}
    yield "all padding", torch.full((2, 2), 3), None, {"padding_idx": 3}
    yield "no id", torch.zeros(0, dtype=torch.int64), torch.tensor([0, 0]), {}
    yield "no bag", torch.zeros(0, 2, dtype=torch.int64), None, {}


class FormulasTest(OnACluster):
    def check(self, module, forward, theirs, *, untrained=None):
        """Checks that the values are the same, bit for bit, and the rows after a step, too."""
        weight = torch.linspace(-1, 1, D)
        opt = self.make(module, steps=1)
        first = self.rows(module.name)
        twin = theirs()
        before = twin.weight.detach().clone()
        for _ in opt.batches(range(4), 2):
            ours = forward(module)
            expected = forward(twin)
            torch.testing.assert_close(ours, expected, rtol=0, atol=0)
            (ours * weight).square().sum().backward()
            (expected * weight).square().sum().backward()
            opt.step()
        after = before if twin.weight.grad is None else before - 0.5 * twin.weight.grad
        if untrained is not None:
            after[untrained] = first[untrained]
        torch.testing.assert_close(self.rows(module.name), after, rtol=0, atol=1e-6)
        self.doCleanups()

    def test_bags(self):
        for mode in ("sum", "mean"):
            for name, ids, offsets, options in cases():
                with self.subTest(mode, case=name):
                    module = EmbeddingBag("t", table(), mode, **options)
                    self.check(
                        module,
                        lambda m, ids=ids, offsets=offsets: m(ids, offsets),
                        lambda m=module, mode=mode, options=options: self.twin(
                            m, torch.nn.EmbeddingBag, mode=mode, **options
                        ),
                    )

    def test_sqrtn(self):
        for name, ids, offsets, options in cases():
            with self.subTest(name):
                module = EmbeddingBag("t", table(), "sqrtn", **options)
                opt = self.make(module, steps=1)
                options = {**options, "include_last_offset": "include_last_offset" in options}
                total = self.twin(module, torch.nn.EmbeddingBag, mode="sum", **options)
                mean = self.twin(module, torch.nn.EmbeddingBag, mode="mean", **options)
                for _ in opt.batches(range(4), 2):
                    # sum / sqrt(n) is the square root of sum x mean, up to signs.
                    expected = (total(ids, offsets) * mean(ids, offsets)).sqrt()
                    torch.testing.assert_close(module(ids, offsets).abs(), expected)
                    opt.step()
                self.doCleanups()

    def test_weights_of_examples(self):
        ids = torch.tensor([[3, 4], [4, 4]])
        weights = torch.tensor([[0.5, 2.0], [1.0, -1.0]])
        module = EmbeddingBag("t", table(), "sum")
        self.check(
            module,
            lambda m: m(ids, per_sample_weights=weights),
            lambda: self.twin(module, torch.nn.EmbeddingBag, mode="sum"),
        )

    def test_weights_that_are_learned(self):
        module = EmbeddingBag("t", table(), "sum")
        ids = torch.tensor([[3, 4], [4, 4]])
        weights = torch.ones(2, 2, requires_grad=True)
        opt = self.make(module, steps=1)
        rows = self.rows("t")
        for _ in opt.batches(range(4), 2):
            module(ids, per_sample_weights=weights).sum().backward()
            opt.step()
        torch.testing.assert_close(weights.grad, rows[ids].sum(dim=2))

    def test_embedding(self):
        for shape in ((), (4,), (2, 3, 2), (0,)):
            for padding in (None, 3):
                with self.subTest(shape=shape, padding=padding):
                    ids = torch.randint(2, 5, shape, generator=torch.Generator().manual_seed(2))
                    module = Embedding("t", table(), padding_idx=padding)

                    def theirs(module=module, padding=padding):
                        twin = self.twin(module, torch.nn.Embedding, padding_idx=padding)
                        with torch.no_grad():
                            twin.weight[3] *= padding is None
                        return twin

                    self.check(module, lambda m, ids=ids: m(ids), theirs, untrained=padding)


class Net(torch.nn.Module):
    """A tower and bags; "shared" serves two modules, one of which is called twice."""

    def __init__(self, shared, other):
        super().__init__()
        torch.manual_seed(3)
        self.one = Embedding("shared", shared)
        self.two = EmbeddingBag("shared", shared, "sum")
        self.three = EmbeddingBag("other", other)
        self.dense = torch.nn.Linear(3 * D, 1)

    def forward(self, x):
        parts = [self.one(x[:, 0]) + self.one(x[:, 1]), self.two(x[:, 2:]), self.three(x)]
        return self.dense(torch.cat(parts, dim=1)).square().mean()


class TrainingTest(OnACluster):
    def data(self):
        generator = torch.Generator().manual_seed(5)
        return torch.utils.data.TensorDataset(torch.randint(IDS, (40, 5), generator=generator))

    def net(self):
        rate = holdfast.Sgd(learning_rate=0.1)
        return Net(table(optimizer=rate), table(optimizer=rate))

    def alone(self, net):
        """The same net in one process: shared rows are one parameter."""
        shared = torch.nn.Parameter(self.rows("shared"))
        other = torch.nn.Parameter(self.rows("other"))
        functional = torch.nn.functional
        twin = copy.deepcopy(net)
        del twin.one, twin.two, twin.three
        twin.shared, twin.other = shared, other
        twin.one = lambda ids: functional.embedding(ids, shared)
        twin.two = lambda ids: functional.embedding_bag(ids, shared, mode="sum")
        twin.three = lambda ids: functional.embedding_bag(ids, other, mode="mean")
        return twin

    def train(self, *, size=8, data=None, ids=None, passes=1, clip=None, **options):
        net = self.net()
        sgd = torch.optim.SGD(net.parameters(), lr=0.1)
        opt = self.make(net, sgd, accumulate=passes, **options)
        twin = self.alone(net)
        theirs = torch.optim.SGD(twin.parameters(), lr=0.1)
        data = self.data() if data is None else data
        told = None if ids is None else (lambda batch: ids(net, batch[0]))
        done = 0
        for [x] in opt.batches(data, size, ids=told):
            opt.zero_grad()
            loss = net(x)
            loss.backward()
            norm = opt.clip_grad_norm(clip) if clip else None
            opt.step(loss)
            other = twin(x)
            (other / passes).backward()
            torch.testing.assert_close(loss, other, rtol=1e-5, atol=1e-6)
            done += 1
            if done % passes == 0:
                if clip:
                    expected = torch.nn.utils.clip_grad_norm_(twin.parameters(), clip)
                    torch.testing.assert_close(norm, expected)
                theirs.step()
                theirs.zero_grad()
        self.assertEqual(done, STEPS * passes)
        for name in ("shared", "other"):
            rows = getattr(twin, name).detach()
            torch.testing.assert_close(self.rows(name), rows, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(net.dense.weight, twin.dense.weight)
        # Also through the modules, because the job is done.
        with torch.no_grad():
            got = net.one(torch.arange(IDS))
        torch.testing.assert_close(got, self.rows("shared"))
        self.assertFalse(got.requires_grad)
        return opt

    def test_beside_a_dense_model(self):
        self.train()

    def test_accumulates(self):
        self.train(size=4, passes=2)

    def test_clips_by_the_norm_over_rows_too(self):
        self.train(clip=0.01)
        self.doCleanups()
        self.train(size=4, passes=2, clip=0.01)

    def test_overlap(self):
        self.train(overlap=True)

    def test_ids_are_told_ahead(self):
        def ids(net, x):
            return {net.one: x[:, :2], net.two: x[:, 2:], net.three: x.numpy()}

        read = holdfast.Cluster.pull_rows
        for examples, passes, asked in (("by_step", 1, 1), ("by_ticket", 1, 1), ("by_step", 2, 1)):
            with self.subTest(examples, passes=passes):
                calls = []

                def counted(cluster, ids, calls=calls):
                    calls.append(ids)
                    return read(cluster, ids)

                with mock.patch.object(holdfast.Cluster, "pull_rows", counted):
                    self.train(ids=ids, examples=examples, passes=passes)
                # Before and after the loop, the test itself makes some calls.
                turns = [call for call in calls if len(call) == 2]
                self.assertEqual(len(turns), STEPS * asked)
                self.assertEqual(len(calls), len(turns) + 6)
                self.doCleanups()

    def test_ids_of_batches_that_processes_load(self):
        loader = torch.utils.data.DataLoader(self.data(), batch_size=4, num_workers=1)
        for passes in (1, 2):
            self.train(
                size=None, data=loader, passes=passes, ids=lambda net, x: {net.three: x}
            )
            self.doCleanups()

    def test_what_was_not_told_is_read(self):
        self.train(ids=lambda net, x: {net.one: x[:2, 0]})

    def test_the_script_trains_what_is_dense(self):
        net = self.net()
        opt = self.make(net)
        twin = self.alone(net)
        ours = torch.optim.Adam(net.parameters(), lr=0.1)
        theirs = torch.optim.Adam([twin.dense.weight, twin.dense.bias], lr=0.1)
        rows = torch.optim.SGD([twin.shared, twin.other], lr=0.1)
        for [x] in opt.batches(self.data(), 8):
            for optimizer in (ours, opt, theirs, rows):
                optimizer.zero_grad()
            loss = net(x)
            loss.backward()
            ours.step()
            opt.step(loss)
            twin(x).backward()
            theirs.step()
            rows.step()
        self.assertEqual(self.cluster.pull(), {})
        torch.testing.assert_close(self.rows("shared"), twin.shared.detach())
        torch.testing.assert_close(net.dense.weight, twin.dense.weight)
        self.assertEqual(holdfast.torch.state_dict(self.saved()), {})

    def saved(self):
        return holdfast.Checkpoint(1, self.cluster.pull())

    def test_ids_are_bits(self):
        module = Embedding("t", table())
        opt = self.make(module, steps=1)
        ids = torch.tensor([-1, 2**63 - 1, -(2**63), 5], dtype=torch.int64)
        unsigned = [2**64 - 1, 2**63 - 1, 2**63, 5]
        first = self.rows("t", np.array(unsigned, np.uint64))
        self.assertEqual(len(set(first[:, 0].tolist())), 4)
        for _ in opt.batches(range(4), 2):
            torch.testing.assert_close(module(ids), first, rtol=0, atol=0)
            torch.testing.assert_close(
                module(torch.tensor([-1, 5], dtype=torch.int32)), first[[0, 3]], rtol=0, atol=0
            )
            module(ids).sum().backward()
            opt.step()
        torch.testing.assert_close(self.rows("t", np.array(unsigned, np.uint64)), first - 0.5)

    def test_the_rule_of_the_optimizer(self):
        net = Net(table(optimizer=None), table(optimizer=None))
        opt = self.make(net, torch.optim.SGD(net.parameters(), lr=0.25), steps=1)
        first = self.rows("shared")
        for _ in opt.batches(range(4), 2):
            net.one(torch.tensor([1])).sum().backward()
            opt.step()
        self.assertEqual((first - self.rows("shared"))[:3].tolist()[0::2], [[0] * D] * 2)
        torch.testing.assert_close((first - self.rows("shared"))[1], torch.full((D,), 0.25))


class ReadingTest(OnACluster):
    def made(self):
        """The number of rows that the ps have reported."""
        tasks = self.cluster.status().everything["tasks"]
        return sum(int(task["ps"]["table_rows"]) for task in tasks if "ps" in task)

    def test_evaluation_makes_nothing(self):
        model = torch.nn.Sequential(Embedding("t", table()), torch.nn.Linear(D, 1))
        opt = self.make(model, torch.optim.SGD(model.parameters(), lr=0.5), steps=3)
        # Before the first batch.
        torch.testing.assert_close(model[0](torch.tensor([4])), self.rows("t")[[4]])
        for number, _ in enumerate(opt.batches(range(4), 2)):
            opt.zero_grad()
            before = self.rows("t")
            model(torch.tensor([1, number + 2])).sum().backward()
            model.eval()
            with torch.no_grad():
                out = model[0](torch.arange(IDS))
            torch.testing.assert_close(out, before)
            self.assertFalse(out.requires_grad)
            # Also with gradients that no backward pass computes.
            model(torch.arange(10_000, 10_100)).sum()
            model.train()
            opt.step()
            after = self.rows("t")
            changed = (before != after).any(dim=1).nonzero().flatten().tolist()
            self.assertEqual(changed, [1, number + 2])
        final = model[0](torch.arange(IDS))
        torch.testing.assert_close(final, self.rows("t"))
        self.assertFalse(final.requires_grad)
        await_that(lambda: self.made() == 4, "the ps to report the rows of the three batches")

    def test_a_batch_that_uses_no_row(self):
        model = torch.nn.Sequential(Embedding("t", table()), torch.nn.Linear(D, 1))
        opt = self.make(model, torch.optim.SGD(model.parameters(), lr=0.5), steps=2)
        first = self.rows("t")
        for _ in opt.batches(range(4), 2):
            opt.zero_grad()
            model[1](torch.ones(D)).sum().backward()
            opt.step()
        self.assertTrue(torch.equal(first, self.rows("t")))

    def test_zero_grad(self):
        module = Embedding("t", table())
        opt = self.make(module, steps=1)
        first = self.rows("t")
        for _ in opt.batches(range(4), 2):
            loss = module(torch.tensor([1])).sum()
            loss.backward(retain_graph=True)
            opt.zero_grad()
            loss.backward()
            opt.step()
        torch.testing.assert_close(first[1] - self.rows("t")[1], torch.full((D,), 0.5))

    def test_a_skipped_batch(self):
        module = Embedding("t", table())
        opt = self.make(module, steps=2, examples="by_ticket",
                        consistency=holdfast.Asynchronous())
        first = self.rows("t")
        for number, _ in enumerate(opt.batches(range(4), 2)):
            module(torch.tensor([number])).sum().backward()
            if number == 0:
                opt.skip()
            else:
                opt.step()
        self.assertTrue(torch.equal(first[0], self.rows("t")[0]))

    def test_what_is_not_finite_counts_nowhere(self):
        module = Embedding("t", table())
        opt = self.make(module, steps=2)
        first = self.rows("t")
        for number, _ in enumerate(opt.batches(range(4), 2)):
            loss = module(torch.tensor([1])).sum()
            (loss * float("nan") if number == 0 else loss).backward()
            opt.step()
        self.assertEqual(self.cluster.outcomes().not_finite, 1)
        self.assertTrue(torch.isfinite(self.rows("t")).all())
        self.assertFalse(torch.equal(first, self.rows("t")))

    def test_a_roll_back(self):
        """Rows, and batches that were announced in advance, continue from the checkpoint."""
        results = []
        for killed in (False, True):
            torch.manual_seed(3)
            model = torch.nn.Sequential(Embedding("t", table()), torch.nn.Linear(D, 1))
            opt = self.make(model, torch.optim.SGD(model.parameters(), lr=0.1), steps=8)
            seen = 0
            data = torch.arange(IDS)
            for x in opt.batches(data, 4, ids=lambda x, model=model: {model[0]: x}):
                seen += 1
                if seen == 4:
                    self.assertEqual(self.cluster.checkpoint(), 3)
                if seen == 6 and killed:
                    self.ps.kill_ps(1)
                opt.zero_grad()
                loss = model(x).square().mean()
                loss.backward()
                opt.step(loss)
            self.assertEqual(seen, 11 if killed else 8)
            results.append(self.rows("t"))
            self.doCleanups()
        self.assertTrue(torch.equal(*results))


class RefusedTest(OnACluster):
    def refuse(self, error, message, call):
        with self.assertRaisesRegex(error, message):
            call()

    def test_modules(self):
        self.refuse(TypeError, "Embedding: the name of a table is a str, got 3",
                    lambda: Embedding(3, table()))
        self.refuse(TypeError, 'EmbeddingBag: table "t": expected EmbeddingTable, got 5',
                    lambda: EmbeddingBag("t", 5))
        self.refuse(ValueError, """EmbeddingBag of table "t": mode is 'max', not "sum\"""",
                    lambda: EmbeddingBag("t", table(), "max"))
        self.refuse(ValueError, 'of table "t": per_sample_weights are for mode="sum", not "mean"',
                    lambda: EmbeddingBag("t", table())(torch.ones(1, 1), None, torch.ones(1, 1)))
        module = Embedding("t", table())
        self.refuse(holdfast.Error, 'Embedding of table "t": it has no cluster to read from',
                    lambda: module(torch.tensor([1])))
        self.assertEqual(repr(module), 'Embedding("t", 3)')
        self.assertEqual(list(module.state_dict()), [])

    def test_models(self):
        def make(model, optimizer=None, **options):
            return holdfast.torch.Optimizer(model, optimizer, steps=1, **options)

        self.refuse(ValueError, "optimizer is None, and the model has no Embedding",
                    lambda: make(torch.nn.Linear(1, 1)))
        net = Net(table(), table())
        net.two.table = table(max_rows_per_push=65)
        self.refuse(ValueError, r'Embedding of table "shared" \("one" of the model\) and '
                    r'EmbeddingBag of table "shared" \("two" of the model\) declare it different',
                    lambda: make(net))
        net = Net(table(optimizer=None), table())
        self.refuse(ValueError, r'"shared" \("one" of the model\): there is no torch optimizer',
                    lambda: make(net))
        self.refuse(ValueError, r'"shared" \("one" of the model\): tables do not support AdamW',
                    lambda: make(net, torch.optim.AdamW(net.parameters())))
        self.refuse(ValueError, r"process_group: the model has tables \(shared, other\)",
                    lambda: make(net, torch.optim.SGD(net.parameters()), process_group=object()))
        self.refuse(ValueError, "scheduler: it belongs to an optimizer, which is None",
                    lambda: make(Net(table(), table()), scheduler=holdfast.Cosine(decay_steps=1)))

    def test_in_the_loop(self):
        model = torch.nn.Sequential(Embedding("t", table(max_rows_per_push=2)))
        opt = self.make(model, steps=1)
        self.assertEqual(repr(model[0]), 'Embedding("t", 3)')
        self.refuse(TypeError, "ids: the keys are the Embedding and EmbeddingBag modules",
                    lambda: next(opt.batches(range(4), 2, ids=lambda x: {"t": x})))
        for _ in opt.batches(range(4), 2):
            self.refuse(TypeError, r'"t" \("0" of the model\): ids have dtype float32; they are in',
                        lambda: model(torch.ones(1)))
            self.refuse(TypeError, "ids are a tensor, got ", lambda: model([1]))
            model(torch.tensor([1, 2, 3])).sum().backward()
            self.refuse(holdfast.Error, r'\("0" of the model\): the batch uses 3 different rows',
                        opt.step)
            opt.zero_grad()
            model(torch.tensor([1, 2])).sum().backward()
            model(torch.tensor([2, 1, 1])).sum().backward()
            opt.step()

    def test_copies_have_no_cluster(self):
        model = torch.nn.Sequential(Embedding("t", table()))
        self.make(model, steps=1)
        for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            self.refuse(holdfast.Error, "it has no cluster", lambda o=other: o(torch.tensor([1])))
        model(torch.tensor([1]))

    def test_ids_without_tables(self):
        model = torch.nn.Linear(1, 1)
        opt = self.make(model, torch.optim.SGD(model.parameters()), steps=1)
        self.refuse(ValueError, "ids: the model has no holdfast.torch.Embedding",
                    lambda: next(opt.batches(range(4), 2, ids=lambda x: {})))


if __name__ == "__main__":
    unittest.main()
