# SPDX-License-Identifier: Apache-2.0

"""``python -m holdfast ...``: the command ``holdfast``, even if it is not in PATH."""

from __future__ import annotations

import os
import sys
from importlib import metadata
from typing import NoReturn


def command() -> str:
    """The file of the command ``holdfast``, which was installed with this package.

    Raises:
        FileNotFoundError: The package was not installed from its wheel.
    """
    try:
        files = metadata.files("holdfast") or []
    except metadata.PackageNotFoundError:
        files = []
    for file in files:
        path = os.path.abspath(str(file.locate()))
        if file.parent.name == "bin" and file.name == "holdfast" and os.access(path, os.X_OK):
            return path
    raise FileNotFoundError(
        "the command holdfast was not installed with this package: install its wheel"
    )


def run(arguments: list[str]) -> NoReturn:
    """Replaces this process with ``holdfast`` and these arguments."""
    program = command()
    sys.stdout.flush()
    os.execv(program, [program, *arguments])


if __name__ == "__main__":
    run(sys.argv[1:])
