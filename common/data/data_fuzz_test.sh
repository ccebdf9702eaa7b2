#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs the fuzzer $1 on the reader of the format $2, with $3 inputs,
# always the same ones. An input that crashes it, or takes 10 s, fails the test
# and is kept in the test's outputs: pass its path to the fuzzer, after the
# format and a folder, to reproduce the failure.
set -euo pipefail

seeds="$(mktemp -d "${TEST_TMPDIR:-/tmp}/seeds.XXXXXX")"
"$1" "$2" "$seeds" -seed=1 -runs="$3" -timeout=10 -rss_limit_mb=2048 -max_len=2048 \
  -artifact_prefix="${TEST_UNDECLARED_OUTPUTS_DIR:-$seeds}/" -print_final_stats=1 2>&1
