#!/bin/bash
# Nothing reads the date, or waits for one, but what common/base/clock.h gives:
# everything else is by the steady clock. Exempt: what makes it so, what stands
# before Abseil's functions or the C library's, and programs that only measure
# other systems.
set -euo pipefail

# The files themselves, not the copies that the test was given.
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
