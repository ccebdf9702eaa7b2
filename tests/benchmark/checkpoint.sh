#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Measures what checkpoints cost: how much slower a job with 256 MB of state
# trains if it is saved every 30 s, how fast it is saved compared with dd in the
# same folder, and how long a job with 1 GB of values stands still when a ps is
# killed.
#
#   tests/benchmark/checkpoint.sh [ROUNDS; default 3]
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
rounds="${1:-3}"
scratch="$(mktemp -d "${HOLDFAST_SCRATCH:-/tmp}/checkpoint.XXXXXX")"
trap 'rm -rf "$scratch"' EXIT

deploy/local/setup.sh
bazel build --noshow_progress //cli:holdfast //ps_server //worker:ps_worker

/usr/bin/python3 tests/benchmark/checkpoint.py "$scratch" "$rounds"
