# SPDX-License-Identifier: Apache-2.0

"""MovieLens as implicit feedback, and how well a model ranks (He et al. 2017).

Each rating is a positive example. Each user's last rating is held out for the test: it should be
ranked above items that the user has never rated.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from holdfast.job import Float32Array

Ids = npt.NDArray[np.int64]

# Number of items among which the test item is ranked, and the rank that counts as a hit.
_AMONG = 99
_FIRST = 10


class Examples(NamedTuple):
    """Pairs of a user and an item.

    Attributes:
        users: int64 [n].
        items: int64 [n].
        labels: float32 [n]: 1 where the user has rated the item, else 0.
    """

    users: Ids
    items: Ids
    labels: Float32Array


class Ratings:
    """The ratings of a file in RecBole's format: a line of names, and tab-separated fields.

    ``ml-100k.inter`` is in RecBole's wheel, as recbole/dataset_example/ml-100k/ml-100k.inter.
    Ids are those of the file.

    Args:
        path: The file.

    Attributes:
        num_users: One more than the greatest id of a user.
        num_items: One more than the greatest id of an item.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It has no such fields, or a user has rated all items.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        with open(path, encoding="utf-8") as file:
            names = [field.partition(":")[0] for field in file.readline().rstrip("\n").split("\t")]
            wanted = ("user_id", "item_id", "timestamp")
            missing = [name for name in wanted if name not in names]
            if missing:
                raise ValueError(f"{os.fspath(path)} has no field {', '.join(missing)}")
            columns = [names.index(name) for name in wanted]
            rows = np.loadtxt(file, np.float64, delimiter="\t", usecols=columns, ndmin=2)
        users, items, times = rows.astype(np.int64).T
        order = np.lexsort((np.arange(len(users)), times, users))
        users, items = users[order], items[order]
        last = np.append(users[1:] != users[:-1], True)
        self.num_users = int(users.max()) + 1
        self.num_items = int(items.max()) + 1
        self._users, self._items = users[~last], items[~last]
        self._test_users, self._test_items = users[last], items[last]
        # By user and item, whether the item was rated, except the last one.
        self._rated = np.zeros((self.num_users, self.num_items), np.bool_)
        self._rated[self._users, self._items] = True
        self._all_items = np.unique(items)
        if (self._rated.sum(axis=1) + 1 >= len(self._all_items)).any():
            raise ValueError(f"{os.fspath(path)}: a user has rated all items, so none can be drawn")

    def train(self, *, epochs: int, negatives: int, seed: int) -> Examples:
        """The positive examples of several epochs, with negative examples drawn for each.

        Args:
            epochs: How often each positive example occurs.
            negatives: Number of items that the user has not rated, for each positive example.
            seed: Seed of the draw.
        """
        random = np.random.default_rng([seed, 1])
        of_epoch = len(self._users)
        users = np.tile(self._users, epochs * (1 + negatives))
        items = np.tile(self._items, epochs * (1 + negatives))
        labels = np.zeros(len(users), np.float32)
        labels[: epochs * of_epoch] = 1
        drawn = items[epochs * of_epoch :]
        drawn[:] = self._not_rated(users[epochs * of_epoch :], random)
        return Examples(users, items, labels)

    def hit_rate(self, scores: Callable[[Ids, Ids], Float32Array], seed: int) -> float:
        """The share of users whose held-out item is among the first 10 of 100.

        Args:
            scores: Called with users and items, int64 [n]; returns float32 [n].
            seed: Seed of the 99 other items of each user.
        """
        random = np.random.default_rng([seed, 2])
        users = np.repeat(self._test_users[:, None], _AMONG, axis=1)
        others = self._not_rated(users.reshape(-1), random).reshape(users.shape)
        # The held-out item is not one of them.
        while (same := others == self._test_items[:, None]).any():
            others[same] = self._not_rated(users[same], random)
        items = np.concatenate([self._test_items[:, None], others], axis=1)
        users = np.repeat(self._test_users[:, None], 1 + _AMONG, axis=1)
        found = scores(users.reshape(-1), items.reshape(-1)).reshape(items.shape)
        better = (found[:, 1:] >= found[:, :1]).sum(axis=1)
        return float((better < _FIRST).mean())

    def _not_rated(self, users: Ids, random: np.random.Generator) -> Ids:
        drawn = random.choice(self._all_items, len(users))
        while len(again := np.flatnonzero(self._rated[users, drawn])):
            drawn[again] = random.choice(self._all_items, len(again))
        return np.asarray(drawn, np.int64)


def first_rows(
    name: str, rows: int, row_length: int, *, low: float, high: float, seed: int
) -> Float32Array:
    """The first values that ``Uniform(low, high)`` gives the rows of a table, without a cluster.

    The same bits as in the ps: Philox4x32-10 (Salmon et al. 2011) under the job's seed, with the
    element's number and the table's name as its counter (common/tensor/initializer.h).

    Args:
        name: The table's name.
        rows: Number of rows, whose ids start at 0.
        row_length: Values of a row.
        low: The minimum value.
        high: The upper bound of the values, exclusive.
        seed: The job's seed.

    Returns:
        float32 [rows, row_length].
    """
    digest = hashlib.sha256(b"holdfast initializer " + name.encode()).digest()
    elements = rows * row_length
    mask = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    counter = np.arange(-(-elements // 4), dtype=np.uint64)
    c = [counter & mask, counter >> half]
    c += [np.full_like(counter, int.from_bytes(digest[at : at + 4], "big")) for at in (0, 4)]
    keys = [seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF]
    for _ in range(10):
        one, two = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        k0, k1 = np.uint64(keys[0]), np.uint64(keys[1])
        c = [(two >> half) ^ c[1] ^ k0, two & mask, (one >> half) ^ c[3] ^ k1, one & mask]
        keys = [(keys[0] + 0x9E3779B9) & 0xFFFFFFFF, (keys[1] + 0xBB67AE85) & 0xFFFFFFFF]
    bits = np.stack(c, axis=1).reshape(-1)[:elements].astype(np.float64)
    least, most = np.float32(low), np.float32(high)
    width = float(most) - float(least)
    values: Float32Array = (float(least) + bits * 2.0**-32 * width).astype(np.float32)
    np.minimum(values, np.nextafter(most, least), out=values)
    return values.reshape(rows, row_length)
