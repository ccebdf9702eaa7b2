#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs a Python test program with Debian's interpreter and NumPy, against the
# library and the daemon built by Bazel.
#   run.sh FILE.py [arguments]
set -euo pipefail

export HOLDFAST_LIBRARY="$PWD/client/c_api/libholdfast.so"
export HOLDFAST_PS_SERVER="$PWD/ps_server/ps_server"
export HOLDFAST="$PWD/cli/holdfast"
export PYTHONPATH="$PWD/python" PYTHONDONTWRITEBYTECODE=1
exec /usr/bin/python3 "$@"
