# SPDX-License-Identifier: Apache-2.0

"""Trains NeuMF (He et al. 2017) on MovieLens with PyTorch, in one process.

    python -m holdfast.examples.torch_neumf_single --data=ml-100k.inter

``torch_neumf.py`` is the same script on a cluster, whose embeddings are tables there. Both have
the same first values, examples and rules.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch

import holdfast
from holdfast.examples.movielens import Ratings, first_rows

BATCH = 2048
RATE = 0.008
FIRST = {"low": -0.0173, "high": 0.0173}  # with a standard deviation of 0.01


def embedding(name: str, ids: int, length: int, seed: int) -> Any:
    """An embedding for ids from 0 on."""
    rows = first_rows(name, ids, length, **FIRST, seed=seed)
    return torch.nn.Embedding.from_pretrained(torch.from_numpy(rows), freeze=False, sparse=True)


class NeuMF(torch.nn.Module):  # type: ignore[misc]
    """A matrix factorization and a perceptron, each with embeddings, under one logistic unit."""

    def __init__(self, users: int, items: int, seed: int) -> None:
        super().__init__()
        self.gmf_user = embedding("gmf_user", users, 8, seed)
        self.gmf_item = embedding("gmf_item", items, 8, seed)
        self.mlp_user = embedding("mlp_user", users, 32, seed)
        self.mlp_item = embedding("mlp_item", items, 32, seed)
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
    ratings: Ratings, *, epochs: int, seed: int, steps: int | None = None
) -> tuple[Any, list[float]]:
    """The model, and the loss of each step; ``steps`` ends it early."""
    examples = ratings.train(epochs=epochs, negatives=4, seed=seed)
    torch.manual_seed(seed)
    model = NeuMF(ratings.num_users, ratings.num_items, seed)
    tables = [module for module in model.modules() if isinstance(module, torch.nn.Embedding)]
    rows = torch.optim.SparseAdam([table.weight for table in tables], lr=RATE)
    dense = torch.optim.Adam([*model.mlp.parameters(), *model.out.parameters()], lr=RATE)
    losses = []
    for step in range(steps or len(examples.labels) // BATCH):
        batch = holdfast.batch_indices(step, len(examples.labels), BATCH, seed)
        users, items, labels = (torch.from_numpy(column[batch]) for column in examples)
        rows.zero_grad()
        dense.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(users, items), labels)
        loss.backward()
        rows.step()
        dense.step()
        losses.append(loss.item())
    return model, losses


def main() -> None:
    """Trains and tests."""
    parser = argparse.ArgumentParser(prog="python -m holdfast.examples.torch_neumf_single")
    parser.add_argument("--data", required=True, help="ml-100k.inter, of RecBole's wheel")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    ratings = Ratings(args.data)
    model, losses = train(ratings, epochs=args.epochs, seed=args.seed)
    with torch.no_grad():
        rate = ratings.hit_rate(
            lambda users, items: model(*map(torch.from_numpy, (users, items))).numpy(),
            args.seed,
        )
    print(f"loss {sum(losses[-50:]) / 50:.4f}, HR@10 {rate:.4f}")


if __name__ == "__main__":
    main()
