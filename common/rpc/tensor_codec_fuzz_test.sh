#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs the fuzzer $1 for 20 s, starting from the inputs in the folder
# $2. An input that crashes it, or takes 10 s, fails the test and is kept in the
# test's outputs: pass its path to the fuzzer to reproduce the failure, and add
# it to the folder.
set -euo pipefail

found="$(mktemp -d "${TEST_TMPDIR:-/tmp}/found.XXXXXX")"
# Protocol Buffers logs a message about each input with invalid UTF-8.
"$1" -max_total_time=20 -timeout=10 -rss_limit_mb=2048 -max_len=1024 \
  -artifact_prefix="${TEST_UNDECLARED_OUTPUTS_DIR:-$found}/" -print_final_stats=1 \
  "$found" "$2" 2>&1 | grep -v 'contains invalid UTF-8'
