# SPDX-License-Identifier: Apache-2.0

"""A data set of digits that are drawn, not downloaded: strokes with random distortions."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

SIDE = 20
CLASSES = 10

# The strokes of each digit: corners of a line, in a square of side 1 with the origin at the top
# left.
_STROKES = (
    "50,10 75,20 82,50 75,80 50,90 25,80 18,50 25,20 50,10",
    "35,28 55,10 55,90",
    "20,30 30,13 50,10 72,15 78,33 65,55 20,90 82,90",
    "22,20 45,10 70,16 75,32 60,46 42,48 62,50 80,66 72,84 48,90 20,80",
    "65,90 65,10 18,65 85,65",
    "78,10 28,10 25,48 50,42 75,52 80,70 68,87 45,90 20,80",
    "70,12 45,20 27,45 23,70 35,87 55,90 75,80 75,62 60,50 40,52 25,66",
    "18,10 82,10 42,90",
    "50,48 30,38 28,20 50,10 72,20 70,38 50,48 25,62 25,80 50,90 75,80 75,62 50,48",
    "75,35 60,48 40,50 25,38 27,20 50,10 70,16 76,35 72,65 55,90",
)

_AT_A_TIME = 500  # images, for the memory of one pass


def _corners() -> npt.NDArray[np.float64]:
    """[CLASSES, corners, 2]; shorter lines repeat their end."""
    lines = [[tuple(map(int, c.split(","))) for c in text.split()] for text in _STROKES]
    longest = max(map(len, lines))
    padded = [line + [line[-1]] * (longest - len(line)) for line in lines]
    return np.array(padded, np.float64) / 100


def _draw(random: np.random.RandomState, labels: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    count = len(labels)

    def uniform(low: float, high: float, *shape: int) -> npt.NDArray[np.float64]:
        # From RandomState, whose numbers are the same in every version of NumPy.
        return low + (high - low) * random.random_sample((count, *shape))

    corners = _corners()[labels]
    corners += uniform(-0.06, 0.06, *corners.shape[1:])
    x = corners[..., 0] - 0.5
    y = corners[..., 1] - 0.5
    # Size, slant and rotation, and position.
    across = uniform(0.55, 1.0, 1) * x + uniform(-0.4, 0.3, 1) * y + uniform(0.4, 0.6, 1)
    down = uniform(0.65, 1.0, 1) * y + uniform(-0.25, 0.25, 1) * x + uniform(0.42, 0.58, 1)

    # The distance of each pixel [image, pixel] to the nearest segment of the line. Uses only
    # operations that IEEE 754 rounds correctly, so that every machine draws the same set.
    centers = (np.arange(SIDE) + 0.5) / SIDE
    pixel_x = np.tile(centers, SIDE)
    pixel_y = np.repeat(centers, SIDE)
    nearest = np.full((count, SIDE * SIDE), np.inf)
    for i in range(across.shape[1] - 1):
        from_x, from_y = across[:, i, None], down[:, i, None]
        along_x, along_y = across[:, i + 1, None] - from_x, down[:, i + 1, None] - from_y
        length = along_x * along_x + along_y * along_y
        share = (pixel_x - from_x) * along_x + (pixel_y - from_y) * along_y
        share = np.clip(share / np.maximum(length, 1e-12), 0, 1)
        off_x = pixel_x - from_x - share * along_x
        off_y = pixel_y - from_y - share * along_y
        np.minimum(nearest, off_x * off_x + off_y * off_y, out=nearest)
    ink = (uniform(0.03, 0.07, 1) + 0.05 - np.sqrt(nearest)) / 0.05
    paper = uniform(0, 0.2, SIDE * SIDE)
    drawn: npt.NDArray[np.uint8] = (255 * np.clip(ink + paper, 0, 1)).astype(np.uint8)
    return drawn


def make(count: int, seed: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Draws digits; the same ones for the same arguments, on any machine.

    Args:
        count: Number of images.
        seed: 0 to 2**32 - 1.

    Returns:
        uint8 [count, SIDE * SIDE], 255 is ink; uint8 [count], the digits 0 to 9.
    """
    random = np.random.RandomState(seed)
    labels = (random.random_sample(count) * CLASSES).astype(np.uint8)
    images = [
        _draw(random, labels[begin : begin + _AT_A_TIME]) for begin in range(0, count, _AT_A_TIME)
    ]
    return np.concatenate(images), labels
