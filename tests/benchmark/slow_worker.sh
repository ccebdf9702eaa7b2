#!/bin/bash
# What a slow worker costs: examples per second with two workers, the second at a
# third of its speed, over those with both at full speed; each job several times in
# turn with the others.
#
#   tests/benchmark/slow_worker.sh [ROUNDS; default 3]
#
# The workers' time passes in waiting, as if a device computed (softmax regression,
# 10 ms a step on the average, 30 ms of the slow one), so that what the slow one
# leaves of this machine's cores does not speed up the other.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
deploy/local/setup.sh
/usr/bin/bazel build //ps_server //tests/slow_worker 2>/dev/null
exec /usr/bin/python3 tests/benchmark/slow_worker.py "${1:-3}"
