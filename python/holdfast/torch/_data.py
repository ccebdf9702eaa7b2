# SPDX-License-Identifier: Apache-2.0

"""Batches of datasets and data loaders by their index in the training stream."""

from __future__ import annotations

import collections
import hashlib
import random
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from holdfast import _arguments
from holdfast.data import Shuffle, batch_indices

# One backward pass's part of a batch: the batch's index, and the index of the piece.
Piece = tuple[int, int]


def seed_of(seed: int, piece: Piece, use: str) -> int:
    """A seed, different for each piece of the stream and each use."""
    data = struct.pack("<QQQ", seed % 2**64, piece[0], piece[1]) + use.encode()
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little") >> 1


class Pieces:
    """A dataset whose items are pieces of batches, collated.

    It is pickled for the processes of a data loader.
    """

    def __init__(
        self,
        dataset: Any,
        size: int,
        pieces: int,
        seed: int,
        collate: Any,
        *,
        shuffle: Shuffle = "full",
        shuffle_block: int = 4096,
    ) -> None:
        self._dataset = dataset
        self._size = size
        self._pieces = pieces
        self._seed = seed
        self._collate = collate
        self._shuffle = shuffle
        self._shuffle_block = shuffle_block
        default = torch.utils.data.default_collate
        # Datasets whose rows need not be taken one by one.
        self._is_tensors = type(dataset) is torch.utils.data.TensorDataset and collate is default

    @property
    def examples(self) -> int:
        """Number of examples in the data set."""
        return len(self._dataset)

    def __getitem__(self, piece: Piece) -> Any:
        batch, index = piece
        rows = batch_indices(
            batch,
            len(self._dataset),
            self._size * self._pieces,
            self._seed,
            shuffle=self._shuffle,
            shuffle_block=self._shuffle_block,
        )
        rows = rows[index * self._size : (index + 1) * self._size]
        if self._is_tensors:
            indices = torch.from_numpy(rows)
            return [tensor[indices] for tensor in self._dataset.tensors]
        seed_all(seed_of(self._seed, piece, "data"))
        chosen = rows.tolist()
        several = getattr(self._dataset, "__getitems__", None)
        items = several(chosen) if several else [self._dataset[row] for row in chosen]
        return self._collate(items)


def seed_all(seed: int) -> None:
    """Seeds the random numbers of PyTorch, NumPy and Python's ``random``."""
    # The same as torch.manual_seed, without its 100 us if there is no GPU.
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)


def _as_it_is(value: Any) -> Any:
    return value


class Inline:
    """Loads pieces when they are requested."""

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces

    @property
    def examples(self) -> int:
        """Number of examples in the data set."""
        return self._pieces.examples

    def take(self, piece: Piece) -> Any:
        return self._pieces[piece]

    def close(self) -> None:
        pass


class Ahead:
    """Makes a loader's processes load the pieces that will probably be requested.

    Args:
        pieces: The pieces to load.
        loader: The loader that loads them.
        own: The pieces of each batch that this process computes.
        stride: Distance from one batch of this process to its next.
    """

    def __init__(self, pieces: Pieces, loader: Any, own: range, stride: int) -> None:
        self._pieces = pieces
        self._own = own
        self._stride = stride
        self._next = 0
        # Pieces that will be requested from the loader, and those that have been.
        self._upcoming: collections.deque[Piece] = collections.deque()
        self._asked: collections.deque[Piece] = collections.deque()
        self._iterator: Any = None
        self._loader = torch.utils.data.DataLoader(
            pieces,
            sampler=_Sampler(self),
            batch_size=None,
            collate_fn=_as_it_is,
            num_workers=loader.num_workers,
            pin_memory=loader.pin_memory,
            timeout=loader.timeout,
            worker_init_fn=loader.worker_init_fn,
            multiprocessing_context=loader.multiprocessing_context,
            prefetch_factor=loader.prefetch_factor,
        )

    @property
    def examples(self) -> int:
        """Number of examples in the data set."""
        return self._pieces.examples

    def keys(self) -> Iterator[Piece]:
        while True:
            if not self._upcoming:
                self._upcoming.extend((self._next, index) for index in self._own)
                self._next += self._stride
            piece = self._upcoming.popleft()
            self._asked.append(piece)
            yield piece

    def take(self, piece: Piece) -> Any:
        if self._iterator is None:
            self._next = piece[0]
            self._iterator = iter(self._loader)
        elif piece not in self._asked:
            # Happens after a rollback, for example. Pieces loaded in vain are dropped below.
            self._upcoming.clear()
            self._next = piece[0]
        while True:
            loaded = next(self._iterator)
            if self._asked.popleft() == piece:
                return loaded

    def close(self) -> None:
        """Ends the processes."""
        self._iterator = None


class _Sampler:
    """The keys that the loader asks for, when it has room."""

    def __init__(self, source: Ahead) -> None:
        self._source = source

    def __iter__(self) -> Iterator[Piece]:
        return self._source.keys()


def source_of(
    data: Any,
    size: int | None,
    *,
    seed: int,
    pieces: int,
    own: range,
    stride: int | None,
    shuffle: Shuffle = "full",
    shuffle_block: int = 4096,
) -> tuple[Inline | Ahead, int]:
    """Returns the source of batches, and the number of examples in a piece.

    Args:
        data: A map-style dataset, or a loader of one.
        size: Number of examples in a piece. Default: the loader's.
        seed: Seed of the order.
        pieces: Number of pieces in a batch.
        own: The pieces that this process computes.
        stride: Distance from one batch of this process to its next; None if it is not known.
        shuffle: As for ``batch_indices``.
        shuffle_block: As for ``batch_indices``.

    Raises:
        TypeError, ValueError: The data cannot be handed out by index.
    """
    loader = data if isinstance(data, torch.utils.data.DataLoader) else None
    dataset = data if loader is None else loader.dataset
    collate = torch.utils.data.default_collate
    if isinstance(dataset, torch.utils.data.IterableDataset):
        raise TypeError(
            f"{type(dataset).__name__} is an IterableDataset, whose examples have no index: no "
            "other worker could compute a batch again; use a dataset with "
            "__getitem__ and __len__, or take indices from batches(range(N), size) and read the "
            "examples yourself"
        )
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        raise TypeError(
            f"{type(dataset).__name__} is neither a DataLoader nor a dataset with __getitem__ and "
            "__len__"
        )
    if loader is not None:
        collate = loader.collate_fn
        size = _size_of(loader, size)
    if size is None:
        raise TypeError("a dataset needs a size: batches(dataset, size)")
    size = _arguments.integer("size", size, least=1)
    if len(dataset) == 0:
        raise ValueError("the dataset is empty")
    source = Pieces(
        dataset, size, pieces, seed, collate, shuffle=shuffle, shuffle_block=shuffle_block
    )
    if loader is not None and loader.num_workers > 0 and stride is not None:
        return Ahead(source, loader, own, stride), size
    return Inline(source), size


def _size_of(loader: Any, size: int | None) -> int | None:
    if loader.batch_size is not None:
        orders = (torch.utils.data.SequentialSampler, torch.utils.data.RandomSampler)
        replaces = getattr(loader.sampler, "replacement", False)
        if type(loader.sampler) not in orders or replaces:
            raise TypeError(
                f"the loader has a {type(loader.sampler).__name__}: which examples are in a batch "
                "follows from the batch's index, for all workers together; leave the sampler out"
            )
        if type(loader.batch_sampler) is not torch.utils.data.BatchSampler:
            raise TypeError(
                f"the loader has a {type(loader.batch_sampler).__name__}: leave it out, and give "
                "the loader a batch_size"
            )
    elif loader.batch_sampler is not None:
        raise TypeError(
            f"the loader has a {type(loader.batch_sampler).__name__}: leave it out, and give the "
            "loader a batch_size"
        )
    if size is None or loader.batch_size is None or loader.batch_size == size:
        return size if loader.batch_size is None else int(loader.batch_size)
    raise ValueError(f"size is {size}, and the loader's batch_size {loader.batch_size}")
