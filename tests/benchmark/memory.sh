#!/bin/bash
# The peak memory of a ps beside what docs/performance.md says that it needs: 2
# workers that do nothing but push and pull, Adam, synchronous and asynchronous,
# without and with checkpoints under way; then whether a small model's ps grows with
# time.
#
#   tests/benchmark/memory.sh [SIZE; default 1GB] [SECONDS of each run; default 40]
#
# With 1 GB a machine of 24 GiB is full, and checkpoints take 6 GB on the disk of
# HOLDFAST_SCRATCH (default /tmp).
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
scratch="$(mktemp -d "${HOLDFAST_SCRATCH:-/tmp}/memory.XXXXXX")"
trap 'rm -rf "$scratch"' EXIT

deploy/local/setup.sh
bazel build --noshow_progress //cli:holdfast //ps_server

/usr/bin/python3 tests/benchmark/memory.py bazel-bin/cli/holdfast "$scratch" \
  "${1:-1GB}" "${2:-40}"
