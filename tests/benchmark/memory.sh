#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Compares the peak memory of a ps with the formula in docs/performance.md: 2
# workers that only push and pull, Adam, synchronous and asynchronous, with and
# without checkpoints under way; then checks whether the ps of a small model
# grows over time.
#
#   tests/benchmark/memory.sh [SIZE; default 1GB] [SECONDS of each run; default 40]
#
# 1 GB fills a machine with 24 GiB, and checkpoints take 6 GB on the disk of
# HOLDFAST_SCRATCH (default /tmp).
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
scratch="$(mktemp -d "${HOLDFAST_SCRATCH:-/tmp}/memory.XXXXXX")"
trap 'rm -rf "$scratch"' EXIT

deploy/local/setup.sh
bazel build --noshow_progress //cli:holdfast //ps_server

/usr/bin/python3 tests/benchmark/memory.py bazel-bin/cli/holdfast "$scratch" \
  "${1:-1GB}" "${2:-40}"
