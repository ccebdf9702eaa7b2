#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checks that waits in the library follow the steady clock, whatever happens to
# the date.
set -euo pipefail

shift_file=$(mktemp)
trap 'rm -f "$shift_file"' EXIT
head -c 8 /dev/zero > "$shift_file"
# LeakSanitizer crashes when the preloaded library replaces system calls.
ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0" \
  LD_PRELOAD=$PWD/tests/faults/libshifted_date.so SHIFTED_DATE=$shift_file \
  tests/c_api/waits "$PWD/client/c_api/libholdfast.so"
