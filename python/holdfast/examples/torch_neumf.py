# SPDX-License-Identifier: Apache-2.0

"""Trains NeuMF (He et al. 2017) on MovieLens with PyTorch, on a cluster.

    holdfast local -- python -m holdfast.examples.torch_neumf --data=ml-100k.inter

``torch_neumf_single.py`` is the same script in one process. The embeddings are tables of the
cluster here, and a batch is shared by the workers. Both have the same first values, examples
and rules.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch

import holdfast.torch
from holdfast.examples.movielens import Ratings

BATCH = 2048
RATE = 0.008
FIRST = {"low": -0.0173, "high": 0.0173}  # with a standard deviation of 0.01


def embedding(name: str, length: int) -> Any:
    """An embedding for any ids."""
    table = holdfast.EmbeddingTable(
        length,
        holdfast.Uniform(**FIRST),
        optimizer=holdfast.Adam(learning_rate=RATE),
        max_rows_per_push=BATCH,
    )
    return holdfast.torch.Embedding(name, table)


class NeuMF(torch.nn.Module):  # type: ignore[misc]
    """A matrix factorization and a perceptron, each with embeddings, under one logistic unit."""

    def __init__(self) -> None:
        super().__init__()
        self.gmf_user = embedding("gmf_user", 8)
        self.gmf_item = embedding("gmf_item", 8)
        self.mlp_user = embedding("mlp_user", 32)
        self.mlp_item = embedding("mlp_item", 32)
        self.mlp = torch.nn.Sequential(
            torch.nn.Linear(64, 32), torch.nn.ReLU(),
            torch.nn.Linear(32, 16), torch.nn.ReLU(),
            torch.nn.Linear(16, 8), torch.nn.ReLU(),
        )  # fmt: skip
        self.out = torch.nn.Linear(16, 1)

    def forward(self, users: Any, items: Any) -> Any:
        """The logit of each pair."""
        gmf = self.gmf_user(users) * self.gmf_item(items)
        mlp = self.mlp(torch.cat([self.mlp_user(users), self.mlp_item(items)], dim=1))
        return self.out(torch.cat([gmf, mlp], dim=1)).squeeze(1)


def train(
    cluster: holdfast.Cluster,
    ratings: Ratings,
    *,
    epochs: int,
    seed: int,
    steps: int | None = None,
) -> tuple[Any, list[float]]:
    """The model, and the loss of this worker in each step; ``steps`` ends it early."""
    examples = ratings.train(epochs=epochs, negatives=4, seed=seed)
    torch.manual_seed(seed)
    model = NeuMF()
    dense = torch.optim.Adam(model.parameters(), lr=RATE)
    opt = holdfast.torch.Optimizer(
        model, dense, steps=steps or len(examples.labels) // BATCH, seed=seed, cluster=cluster
    )

    def ids_of(batch: Any) -> dict[Any, Any]:
        users, items, _ = batch
        return {
            model.gmf_user: users,
            model.gmf_item: items,
            model.mlp_user: users,
            model.mlp_item: items,
        }

    losses = []
    dataset = torch.utils.data.TensorDataset(*map(torch.from_numpy, examples))
    for users, items, labels in opt.batches(dataset, BATCH // cluster.replicas, ids=ids_of):
        opt.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(users, items), labels)
        loss.backward()
        opt.step(loss)
        losses.append(loss.item())
    return model, losses


def main() -> None:
    """Trains and tests."""
    parser = argparse.ArgumentParser(prog="python -m holdfast.examples.torch_neumf")
    parser.add_argument("--data", required=True, help="ml-100k.inter, of RecBole's wheel")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    ratings = Ratings(args.data)
    with holdfast.connect() as cluster:
        model, losses = train(cluster, ratings, epochs=args.epochs, seed=args.seed)
        with torch.no_grad():
            rate = ratings.hit_rate(
                lambda users, items: model(*map(torch.from_numpy, (users, items))).numpy(),
                args.seed,
            )
    print(f"loss {sum(losses[-50:]) / 50:.4f}, HR@10 {rate:.4f}")


if __name__ == "__main__":
    main()
