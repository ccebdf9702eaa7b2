#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Click models of job files against the same models in PyTorch: AUC and examples per second.

Both read the same examples in Criteo's format (`holdfast datagen criteo`) in the order of the
files, in the same batches, start from the same first values, and train with the same rule.
Holdfast has one ps and one worker with --intra_op_threads threads; PyTorch is one process with
--torch_threads threads and sparse gradients for the embeddings. The first values come from a job
whose learning rate is too small to change them. Runs alternate. Prints each round's AUC, and the
medians of examples per second and of the ratios within a round. PyTorch has its examples as
tensors before the clock starts, just as Holdfast's worker has its rows.

    VENV/bin/python tests/benchmark/click_models.py --holdfast=bazel-bin/cli/holdfast \\
        --data=/tmp/clicks [--models=dlrm,wide_and_deep] [--rounds=3] [--epochs=1] [--workers=1]
"""

import argparse
import glob
import json
import os
import statistics
import subprocess
import tempfile
import time

import numpy as np
import torch
import xxhash

FIELDS = 26
NUMBERS = 13
ROW_LENGTH = 16
BOTTOM = (64, ROW_LENGTH)
TOP = (64,)
DEEP = (256, 128)
# So small that its place in the formula does not matter: PyTorch's SparseAdam adds it before the
# bias correction, others after it.
EPSILON = 1e-12


def layers(name, widths, relu_last=True):
    parts = []
    for i, units in enumerate(widths):
        parts.append(f"{name} {{ dense {{ units: {units} }} }}")
        if relu_last or i + 1 < len(widths):
            parts.append(f"{name} {{ relu {{}} }}")
    return " ".join(parts)


MODELS = {
    "dlrm": (
        f"dlrm {{ embedding {{ row_length: {ROW_LENGTH} table {{ initializer {{ uniform {{ "
        f"low: -0.25 high: 0.25 }} }} }} }} {layers('bottom', BOTTOM)} {layers('top', TOP)} }}"
    ),
    "wide_and_deep": (
        f"wide_and_deep {{ embedding {{ row_length: {ROW_LENGTH} }} {layers('layers', DEEP)} }}"
    ),
}


def read(pattern):
    """Labels, numbers as the job transforms them, and unchanged ids of all fields."""
    labels, numbers, ids = [], [], []
    for path in sorted(glob.glob(pattern)):
        with open(path) as file:
            for line in file:
                cells = line.rstrip("\n").split("\t")
                labels.append(float(cells[0]))
                numbers.append([float(x) if x else 0.0 for x in cells[1 : 1 + NUMBERS]])
                ids.append([int(x, 16) if x else -1 for x in cells[1 + NUMBERS :]])
    x = np.log1p(np.maximum(np.array(numbers), 0)).astype(np.float32)
    return np.array(labels, np.float32), x, np.array(ids, np.int64)


def row_ids(ids, texts):
    """Replaces each cell by the id of its row (docs/data.md, "Ids")."""
    for field in range(FIELDS):
        group = xxhash.xxh64_intdigest(f"C{field + 1}".encode())
        known, places = np.unique(ids[:, field], return_inverse=True)
        cells = [b"" if x < 0 else b"%08x" % x for x in known]
        hashes = [xxhash.xxh64_intdigest(cell, group) for cell in cells]
        texts[:, field] = np.array(hashes, np.uint64)[places]
    return texts


def mlp(inputs, widths):
    parts = []
    for units in widths:
        parts += [torch.nn.Linear(inputs, units), torch.nn.ReLU()]
        inputs = units
    return torch.nn.Sequential(*parts)


def table(values):
    rows = torch.from_numpy(values.copy())
    return torch.nn.Embedding.from_pretrained(rows, freeze=False, sparse=True)


def take(linear, values, name):
    """Sets a layer to the values of the job's variables NAME/kernel and NAME/bias."""
    with torch.no_grad():
        linear.weight.copy_(torch.from_numpy(values[f"{name}/kernel"].T.copy()))
        linear.bias.copy_(torch.from_numpy(values[f"{name}/bias"]))


def take_layers(network, values, name):
    for i, linear in enumerate(network[::2]):
        take(linear, values, f"{name}/dense" + (f"_{i}" if i else ""))


class Dlrm(torch.nn.Module):
    def __init__(self, values):
        super().__init__()
        self.rows = table(values["embedding.values"])
        self.bottom = mlp(NUMBERS, BOTTOM)
        vectors = FIELDS + 1
        self.top = mlp(ROW_LENGTH + vectors * (vectors - 1) // 2, TOP)
        self.logit = torch.nn.Linear(TOP[-1], 1)
        take_layers(self.bottom, values, "bottom")
        take_layers(self.top, values, "top")
        take(self.logit, values, "top/logit")
        pairs = torch.tril_indices(vectors, vectors, -1)
        self.register_buffer("pairs", pairs[0] * vectors + pairs[1])

    def forward(self, x, ids):
        bottom = self.bottom(x)
        vectors = torch.cat([bottom.unsqueeze(1), self.rows(ids)], dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)
        inputs = torch.cat([bottom, products[:, self.pairs]], dim=1)
        return self.logit(self.top(inputs)).squeeze(1)


class WideAndDeep(torch.nn.Module):
    def __init__(self, values):
        super().__init__()
        self.weights = table(values["linear.values"])
        self.linear = torch.nn.Linear(NUMBERS, 1)
        self.rows = table(values["embedding.values"])
        self.deep = mlp(NUMBERS + FIELDS * ROW_LENGTH, DEEP)
        self.logit = torch.nn.Linear(DEEP[-1], 1)
        take(self.linear, values, "linear")
        take_layers(self.deep, values, "deep")
        take(self.logit, values, "deep/logit")

    def forward(self, x, ids):
        wide = self.weights(ids).sum(dim=1) + self.linear(x)
        deep = self.logit(self.deep(torch.cat([x, self.rows(ids).flatten(1)], dim=1)))
        return (wide + deep).squeeze(1)


class Optimizers:
    """Adam with sparse gradients for the tables, and dense ones for all other parameters."""

    def __init__(self, model, rate):
        tables = [m.weight for m in model.modules() if isinstance(m, torch.nn.Embedding)]
        named = {id(t) for t in tables}
        dense = [p for p in model.parameters() if id(p) not in named]
        if args.optimizer == "adam":
            self.all = [
                torch.optim.SparseAdam(tables, lr=rate, eps=EPSILON),
                torch.optim.Adam(dense, lr=rate, eps=EPSILON, fused=True),
            ]
        else:
            options = {"lr": rate, "initial_accumulator_value": 0.1, "eps": EPSILON}
            self.all = [
                torch.optim.Adagrad(tables, **options),
                torch.optim.Adagrad(dense, **options, fused=True),
            ]

    def zero_grad(self):
        for optimizer in self.all:
            optimizer.zero_grad()

    def step(self):
        for optimizer in self.all:
            optimizer.step()


def auc(labels, outputs):
    """The Mann-Whitney statistic; ties count half."""
    order = np.argsort(outputs, kind="stable")
    _, inverse, counts = np.unique(outputs[order], return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks = (ends - (counts - 1) / 2)[inverse]
    positive = labels[order] > 0.5
    wins = ranks[positive].sum() - positive.sum() * (positive.sum() + 1) / 2
    return wins / (positive.sum() * (~positive).sum())


def run_torch(name, train, test, values):
    torch.set_num_threads(args.torch_threads)
    model = (Dlrm if name == "dlrm" else WideAndDeep)(values)
    optimizers = Optimizers(model, args.rate)
    y, x, ids = train
    steps = len(y) * args.epochs // args.batch
    begin = time.perf_counter()
    for step in range(steps):
        at = step * args.batch % len(y)
        some = slice(at, at + args.batch)
        optimizers.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(
            model(x[some], ids[some]), y[some]
        )
        loss.backward()
        optimizers.step()
    seconds = time.perf_counter() - begin
    outputs = []
    with torch.no_grad():
        for at in range(0, len(test[0]), 10000):
            some = slice(at, at + 10000)
            outputs.append(model(test[1][some], test[2][some]))
    return steps * args.batch / seconds, auc(test[0].numpy(), torch.cat(outputs).numpy())


def run_job(folder, name, data, steps, optimizer, more=""):
    """Runs a job of the model on all examples in order. Returns result.json."""
    job = os.path.join(folder, "job.textproto")
    with open(job, "w") as file:
        file.write(
            f'name: "{name}" model {{ {MODELS[name]} }} data {{ shuffle: NONE '
            f'train {{ criteo {{ files: "{os.path.abspath(args.data)}/{data}-*.tsv" }} }} '
            f'test {{ criteo {{ files: "{os.path.abspath(args.data)}/test-*.tsv" }} }} }} '
            f"batch_size: {args.batch} steps: {steps} optimizer {{ {optimizer} }} {more}"
        )
    subprocess.run(
        [
            args.holdfast,
            "local",
            f"--job={job}",
            f"--ps={args.ps}",
            f"--workers={args.workers}",
            f"--run_dir={folder}/run",
            f"--worker_flags=--data_cache_dir={args.cache} "
            f"--intra_op_threads={args.intra_op_threads}",
            "--status_port=none",
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    with open(f"{folder}/run/result.json") as file:
        return json.load(file)


def first_values(name, train, test):
    """The first values of the model's variables and rows; replaces ids by row indices."""
    values = {}
    ids = []
    for data, examples in (("train", train), ("test", test)):
        with tempfile.TemporaryDirectory() as folder:
            steps = -(-len(examples) // args.batch // args.workers)
            run_job(folder, name, data, steps, "learning_rate: 1e-30 sgd {}", "checkpoints {}")
            output = f"{folder}/values.npz"
            subprocess.run(
                [
                    args.holdfast,
                    "checkpoint",
                    "export",
                    f"{folder}/run/checkpoints",
                    f"--output={output}",
                ],
                check=True,
                stdout=subprocess.DEVNULL,
            )
            exported = dict(np.load(output))
            for table_file in glob.glob(f"{folder}/values.*.npy"):
                exported[os.path.basename(table_file)[len("values.") : -len(".npy")]] = np.load(
                    table_file
                )
        ids.append(exported["embedding.ids"])
        values[data] = exported
    merged = values["train"]
    new = ~np.isin(ids[1], ids[0])
    every = np.concatenate([ids[0], ids[1][new]])
    order = np.argsort(every)
    for key in [key for key in merged if key.endswith(".values")]:
        merged[key] = np.concatenate([merged[key], values["test"][key][new]])[order]
    return merged, every[order]


def run_holdfast(name, examples):
    steps = examples * args.epochs // args.batch // args.workers
    optimizer = f"learning_rate: {args.rate} {args.optimizer} {{ epsilon: {EPSILON} }}"
    with tempfile.TemporaryDirectory() as folder:
        result = run_job(folder, name, "train", steps, optimizer, "evaluation { auc: true }")
    return result["examples_per_second"], result["test_auc"]


def main():
    train = list(read(f"{args.data}/train-*.tsv"))
    test = list(read(f"{args.data}/test-*.tsv"))
    for part in (train, test):
        part[2] = row_ids(part[2], np.zeros(part[2].shape, np.uint64))
    train[:2] = [torch.from_numpy(part) for part in train[:2]]
    test[:2] = [torch.from_numpy(part) for part in test[:2]]
    # In both programs, the next epoch begins after the last whole batch.
    whole = len(train[0]) // args.batch * args.batch
    if args.epochs > 1 and whole != len(train[0]):
        raise SystemExit("with --epochs above 1 the batches must divide the examples")
    for name in args.models.split(","):
        values, ids = first_values(name, train[0], test[0])
        sets = [
            (*part[:2], torch.from_numpy(np.searchsorted(ids, part[2]))) for part in (train, test)
        ]
        print(f"{name}: {len(train[0])} examples, {len(ids)} ids, batches of {args.batch}")
        rounds = []
        for _ in range(args.rounds):
            ours = run_holdfast(name, len(train[0]))
            theirs = run_torch(name, *sets, values)
            rounds.append((ours, theirs))
            print(
                f"{name}: Holdfast {ours[0]:.0f}/s, AUC {ours[1]:.5f}; "
                f"PyTorch {theirs[0]:.0f}/s, AUC {theirs[1]:.5f}; "
                f"ratio {ours[0] / theirs[0]:.3f}, difference {ours[1] - theirs[1]:+.5f}",
                flush=True,
            )
        ratios = [ours[0] / theirs[0] for ours, theirs in rounds]
        print(
            f"{name}: medians: Holdfast {statistics.median(o[0] for o, _ in rounds):.0f}/s, "
            f"PyTorch {statistics.median(t[0] for _, t in rounds):.0f}/s, ratio "
            f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--holdfast", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--models", default="dlrm,wide_and_deep")
    parser.add_argument("--optimizer", choices=("adam", "adagrad"), default="adam")
    parser.add_argument("--rate", type=float, default=0.002)
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ps", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--torch_threads", type=int, default=2)
    parser.add_argument("--intra_op_threads", type=int, default=2, help="for Holdfast's worker")
    parser.add_argument("--cache", default=tempfile.gettempdir() + "/holdfast_click_cache")
    args = parser.parse_args()
    os.makedirs(args.cache, exist_ok=True)
    main()
