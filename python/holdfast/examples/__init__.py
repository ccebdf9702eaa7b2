# SPDX-License-Identifier: Apache-2.0

"""Training scripts that run without changes, and data for them."""

from __future__ import annotations

import gzip
import os

import numpy as np
import numpy.typing as npt

from holdfast.job import Float32Array

FASHION_MNIST = "/usr/share/datasets/fashion-mnist"


def fashion_mnist(
    folder: str | os.PathLike[str] = FASHION_MNIST,
) -> tuple[Float32Array, npt.NDArray[np.int64], Float32Array, npt.NDArray[np.int64]]:
    """Fashion-MNIST, from the files of Debian's package dataset-fashion-mnist.

    Args:
        folder: The folder with the four files.

    Returns:
        (x, y, test_x, test_y): float32 [60000, 784] and [10000, 784], 0 to 1, as
        ``ps_worker`` reads them; int64 [60000] and [10000], 0 to 9.

    Raises:
        FileNotFoundError: The files do not exist.
    """

    def read(name: str, header: int) -> npt.NDArray[np.uint8]:
        path = os.path.join(folder, name + "-ubyte.gz")
        if not os.path.exists(path):
            raise FileNotFoundError(
                f"there is no {path}: install Debian's package dataset-fashion-mnist"
            )
        with gzip.open(path) as file:
            return np.frombuffer(file.read(), np.uint8, offset=header)

    def part(name: str) -> tuple[Float32Array, npt.NDArray[np.int64]]:
        labels = read(f"{name}-labels-idx1", 8)
        pixels = read(f"{name}-images-idx3", 16).reshape(len(labels), -1)
        return pixels * np.float32(1 / 255), labels.astype(np.int64)

    return *part("train"), *part("t10k")
