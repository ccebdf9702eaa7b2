#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the images of shapes.textproto: small discs and squares, red and blue.

    examples/shapes.py FOLDER [--train=240] [--test=80]

Writes FOLDER/train/CLASS/*.png and FOLDER/test/CLASS/*.png, and the same images in the same order
as records of tf.train.Example in train.tfrecord and test.tfrecord. The same sizes give the same
bytes. Needs nothing but Python.
"""

import argparse
import pathlib
import random
import struct
import zlib

SIZE = 24
CLASSES = ("blue_disc", "blue_square", "red_disc", "red_square")


def draw(name, rng):
    """The rows of an image, with 3 bytes per pixel."""
    radius = 5 + 4 * rng.random()
    center_x = SIZE / 2 + 4 * (rng.random() - 0.5)
    center_y = SIZE / 2 + 4 * (rng.random() - 0.5)
    bright = 160 + 90 * rng.random()
    dim = 60 * rng.random()
    color = (bright, dim, dim) if name.startswith("red") else (dim, dim, bright)
    ground = [110 + 60 * rng.random()] * 3
    rows = []
    for y in range(SIZE):
        row = bytearray()
        for x in range(SIZE):
            away = (abs(x + 0.5 - center_x), abs(y + 0.5 - center_y))
            if name.endswith("disc"):
                inside = away[0] ** 2 + away[1] ** 2 < radius**2
            else:
                inside = max(away) < radius * 0.85
            for value in color if inside else ground:
                row.append(min(255, max(0, int(value + 30 * (rng.random() - 0.5)))))
        rows.append(bytes(row))
    return rows


def png(rows):
    def chunk(kind, data):
        crc = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", crc)

    header = struct.pack(">IIBBBBB", SIZE, SIZE, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows))
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", pixels)
        + chunk(b"IEND", b"")
    )


def crc_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


TABLE = crc_table()


def masked_crc(data):
    """The checksum of TFRecord files: CRC-32C, rotated, plus a constant."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 255]
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def record(data):
    length = struct.pack("<Q", len(data))
    return length + masked_crc(length) + data + masked_crc(data)


def field(number, data):
    """A length-delimited field of a protocol buffer."""
    length = len(data)
    size = b""
    while length > 127:
        size += bytes([length & 127 | 128])
        length >>= 7
    return bytes([number << 3 | 2]) + size + bytes([length]) + data


def example(image, label):
    """A tf.train.Example: "image", a PNG file, and "label"."""
    features = (
        (b"image", field(1, field(1, image))),
        (b"label", field(3, field(1, bytes([label])))),
    )
    entries = [field(1, field(1, name) + field(2, value)) for name, value in features]
    return field(1, b"".join(entries))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--train", type=int, default=240, help="images to train on (240)")
    parser.add_argument("--test", type=int, default=80, help="images to test on (80)")
    args = parser.parse_args()
    for seed, (part, count) in enumerate((("train", args.train), ("test", args.test))):
        rng = random.Random(seed)
        records = []
        for label, name in enumerate(CLASSES):
            folder = args.folder / part / name
            folder.mkdir(parents=True, exist_ok=True)
            for i in range(count // len(CLASSES)):
                image = png(draw(name, rng))
                (folder / f"{i:04}.png").write_bytes(image)
                records.append(record(example(image, label)))
        (args.folder / f"{part}.tfrecord").write_bytes(b"".join(records))


if __name__ == "__main__":
    main()
