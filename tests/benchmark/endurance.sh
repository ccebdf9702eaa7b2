#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checks whether anything grows: runs a tiny job of many steps, synchronous and
# asynchronous, with checkpoints, and prints memory, threads and open files of
# each daemon at every tenth of the steps.
#
#   tests/benchmark/endurance.sh [STEPS; default 1000000]
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
steps="${1:-1000000}"
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT

deploy/local/setup.sh
bazel build --noshow_progress //cli:holdfast //ps_server //worker:ps_worker

/usr/bin/python3 tests/benchmark/endurance.py "$scratch" "$steps"
