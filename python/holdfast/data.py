# SPDX-License-Identifier: Apache-2.0

"""The examples of a batch, and the digest of values. Pure functions."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from holdfast import _arguments, _native
from holdfast.job import Float32Array

# Numbers of examples.
_MOST = 2**63 - 1

Shuffle = Literal["full", "blocks", "none"]


def batch_indices(
    batch: int,
    examples: int,
    batch_size: int,
    seed: int = 0,
    *,
    shuffle: Shuffle = "full",
    shuffle_block: int = 4096,
) -> npt.NDArray[np.int64]:
    """The examples of a batch.

    The training stream repeats the data set, each epoch in a different order that depends only on
    the seed. Batches are consecutive parts of the stream, so a batch may begin in one epoch and end
    in the next. ``ps_worker`` uses the same examples for the same ``seed``, ``batch_size`` and
    ``shuffle``.

    Args:
        batch: Index of the batch, from ``Cluster.batches``.
        examples: Number of examples in the data set.
        batch_size: Number of examples in a batch.
        seed: Seed of the order.
        shuffle: "full": any example may be anywhere in an epoch. "blocks": blocks of
            ``shuffle_block`` examples in random order, and the examples of each block in random
            order, so that a data set larger than memory is read a block at a time. "none": the
            order of the data.
        shuffle_block: Number of examples in a block.

    Returns:
        int64 [batch_size]: indices from 0 to ``examples`` - 1.

    Raises:
        Refused: An argument is out of range.
        TypeError, ValueError: A number is not an integer of at most 64 bits, or ``shuffle`` is not
            one of these.
    """
    if shuffle not in get_args(Shuffle):
        raise ValueError(f"shuffle is {shuffle!r}, not one of {', '.join(get_args(Shuffle))}")
    batch_size = _arguments.integer("batch_size", batch_size, most=_MOST)
    indices = np.empty(batch_size, np.int64)
    _native.call(
        _native.library.holdfast_batch_examples_shuffled,
        _arguments.integer("seed", seed),
        get_args(Shuffle).index(shuffle),
        _arguments.integer("shuffle_block", shuffle_block, least=1, most=_MOST),
        _arguments.integer("examples", examples, most=_MOST),
        batch_size,
        _arguments.integer("batch", batch),
        indices.ctypes.data,
    )
    return indices


def _name_bytes(name: str) -> bytes:
    # A name that is no name of a variable, because it is not UTF-8, has a digest all the same.
    return name.encode(errors="surrogatepass")


def digest(values: Mapping[str, Float32Array]) -> str:
    """Digest of variables: equal digests mean equal variables, bit for bit.

    The same as the "digest of the variables" that ``ps_worker`` logs: the SHA-256 of, in the order
    of their names, each variable's name, a zero byte, its shape such as "[784,10]", a zero byte,
    and its values as little-endian float32 in row-major order.

    Args:
        values: float32 arrays by name, as ``Cluster.pull`` returns them.

    Returns:
        64 hexadecimal digits.

    Raises:
        TypeError: An array is not float32.
    """
    sha256 = hashlib.sha256()
    for name in sorted(values, key=_name_bytes):
        value = np.asarray(values[name])
        if value.dtype != np.float32:
            raise TypeError(f'"{name}" has dtype {value.dtype}, not float32')
        shape = ",".join(map(str, value.shape))
        sha256.update(_name_bytes(f"{name}\0[{shape}]\0"))
        sha256.update(np.ascontiguousarray(value).astype("<f4", copy=False).tobytes())
    return sha256.hexdigest()
