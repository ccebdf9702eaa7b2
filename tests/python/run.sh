#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Tests the wheel as users have it: installed, together with grpcio, PyTorch,
# TensorFlow, JAX, MXNet and IPython, in every installed Python; and the style and types
# of python/. The last line is "N passed, N failed, N skipped".
#
#   tests/python/run.sh [names of tests, as for unittest; default: all]
#
# Needs PyPI, and 7 GB under ~/.cache, which later runs reuse.
# Builds the wheel, unless HOLDFAST_WHEEL names one.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
deploy/local/setup.sh
HOLDFAST_FRAMEWORKS="$(tests/python/environment.sh tests/python/requirements.txt)"
HOLDFAST_MXNET="$(tests/python/environment.sh tests/python/mxnet_requirements.txt)"
HOLDFAST_IPYTHON="$(tests/python/environment.sh tests/python/ipython_requirements.txt)"
HOLDFAST_TOOLS="$(tests/python/environment.sh tests/python/tools_requirements.txt)"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
if [[ -z "${HOLDFAST_WHEEL:-}" ]]; then
  HOLDFAST_WHEEL="$(python/build_wheel.sh --out="$work")"
fi
export HOLDFAST_FRAMEWORKS HOLDFAST_IPYTHON HOLDFAST_MXNET HOLDFAST_TOOLS HOLDFAST_WHEEL
PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 tests/run_unittests.py tests/python "$@"
