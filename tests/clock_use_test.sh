#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checks that no code reads the date, or waits for one, except through
# common/base/clock.h: everything else uses the steady clock. Exempt are the
# files that implement this, those that replace functions of Abseil or the C
# library, and programs that only measure other systems.
set -euo pipefail

# The source tree itself, not the runfiles of the test.
cd "$(dirname "$(readlink -f WORKSPACE)")"

dates='absl::Now\(|GetCurrentTimeNanos|ToChronoTime|system_clock'
dates+='|(Await|LockWhen|Wait|WaitForNotification)WithDeadline\('
dates+='|gettimeofday|CLOCK_REALTIME|GPR_CLOCK_REALTIME|\bstd::time\(|\btime\((nullptr|NULL|0)\)'
if grep -rnE "$dates" --include='*.cc' --include='*.h' --include='*.cu' \
    cli client common examples ps_server tests worker |
    grep -vE '^(common/base/clock\.h|common/base/steady_waits(_test)?\.cc|tests/faults/shifted_date\.cc|tests/benchmark/)'; then
  echo "These read the date: use SteadyNow(), or DateNow() (common/base/clock.h)."
  exit 1
fi
