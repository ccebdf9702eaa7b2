#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checks style and types of the Python files here. Needs ruff, mypy and NumPy,
# in the versions that tests/python/ installs:
#   PATH=VENV/bin:$PATH python/check.sh
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")"
ruff check .
ruff format --check .
mypy
