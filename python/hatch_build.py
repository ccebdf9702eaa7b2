# SPDX-License-Identifier: Apache-2.0

"""Puts the library and the programs built by Bazel into the wheel."""

from __future__ import annotations

import os
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_PROGRAMS = ("holdfast", "ps_server", "ps_worker")


class NativeWheel(BuildHookInterface):
    """Takes them from the folder named by the environment variable HOLDFAST_BINARIES."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """One wheel for every Python, because the library is loaded by ctypes."""
        folder = os.environ.get("HOLDFAST_BINARIES")
        if not folder:
            raise ValueError("the wheel has native parts: build it with python/build_wheel.sh")
        build_data["pure_python"] = False
        # auditwheel determines later on which systems it runs.
        build_data["tag"] = "py3-none-linux_x86_64"
        build_data["force_include"][f"{folder}/libholdfast.so"] = "holdfast/libholdfast.so.1"
        for program in _PROGRAMS:
            build_data["shared_scripts"][f"{folder}/{program}"] = program
