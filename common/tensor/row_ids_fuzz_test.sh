#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs the fuzzer $1, always on the same inputs. An input that crashes it fails the test and is kept
# in the test's outputs: pass its path to the program to reproduce the crash.
set -euo pipefail

seeds="$(mktemp -d "${TEST_TMPDIR:-/tmp}/seeds.XXXXXX")"
"$1" "$seeds" -seed=1 -runs=200000 -timeout=10 -max_len=256 \
  -artifact_prefix="${TEST_UNDECLARED_OUTPUTS_DIR:-$seeds}/" -print_final_stats=1 2>&1
