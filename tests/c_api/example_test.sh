#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checks that examples/c/softmax.c learns what it should, and prints the same
# output for any number of ps.
set -euo pipefail

train() {
  cli/holdfast local --ps="$1" --workers=2 --run_dir="$TEST_TMPDIR/$1" \
    --ps_binary=ps_server/ps_server -- examples/c/softmax > "$TEST_TMPDIR/$1.out" 2>&1 ||
    { cat "$TEST_TMPDIR/$1.out"; tail -n 20 "$TEST_TMPDIR/$1"/*.log; exit 1; }
  cat "$TEST_TMPDIR/$1/worker-0.log"
}

one=$(train 1)
two=$(train 2)
accuracy=$(sed -n 's/.*accuracy //p' <<< "$one")
echo "accuracy $accuracy"
awk -v accuracy="$accuracy" 'BEGIN { exit !(accuracy > 0.9) }'
diff <(grep -E 'loss|accuracy' <<< "$one") <(grep -E 'loss|accuracy' <<< "$two")
