#!/bin/bash
# What a slow worker costs: examples per second of the MLP with two workers, the
# second at a third of its speed, over those with both at full speed; each job
# several times in turn with the others.
#
#   tests/benchmark/slow_worker.sh [ROUNDS; default 3]
#
# Both workers get one core's worth of arithmetic at most (the machine should have
# two): what the slow one leaves free is not to speed up the other.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
deploy/local/setup.sh
/usr/bin/bazel build //ps_server //worker:ps_worker 2>/dev/null
exec /usr/bin/python3 tests/benchmark/slow_worker.py "${1:-3}"
