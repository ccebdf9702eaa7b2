# SPDX-License-Identifier: Apache-2.0

"""Rows in ps-lite, built from the source that PS_LITE_SOURCE names."""

import os
import pathlib
import subprocess

import ps_lite
import rows

ROOT = pathlib.Path(__file__).parents[3]


def build(source, folder):
    """Builds the program ps_lite_rows in `folder` with the system's Abseil. Returns its path."""
    words = subprocess.run(["pkg-config", "--cflags", "--libs", "absl_flat_hash_map"], check=True,
                           stdout=subprocess.PIPE, text=True).stdout.split()
    return ps_lite.build(source, folder, "ps_lite_rows",
                         [f"-I{ROOT}", ROOT / "cli/zipf.cc",
                          ROOT / "common/base/portable_math.cc", *words])


def main():
    parser = rows.parser()
    parser.add_argument("--build", type=pathlib.Path, help="only build the program, in this folder")
    parser.add_argument("--program", help="path of ps_lite_rows")
    flags = parser.parse_args()
    if flags.build:
        print(build(os.environ["PS_LITE_SOURCE"], flags.build))
        return
    ps_lite.run([flags.program, *(str(getattr(flags, name)) for name in (
        "rows", "ids", "zipf", "row_length", "seconds"))])


if __name__ == "__main__":
    main()
