#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Measures what a slow worker costs: examples per second with two workers, the
# second at a third of its speed, relative to both at full speed; the jobs
# alternate for several rounds.
#
#   tests/benchmark/slow_worker.sh [ROUNDS; default 3]
#
# The workers spend their time waiting, as if a device computed (softmax
# regression, 10 ms per step on average, 30 ms for the slow worker), so that the
# slow worker's idle cores do not speed up the other.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
deploy/local/setup.sh
/usr/bin/bazel build //ps_server //tests/slow_worker 2>/dev/null
exec /usr/bin/python3 tests/benchmark/slow_worker.py "${1:-3}"
