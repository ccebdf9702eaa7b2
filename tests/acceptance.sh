#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs the tests that take too long for tests/run.sh: the accuracies, digests
# and late starters that the examples promise, on real data. The last line of
# output is "N passed, N failed".
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec tests/run.sh --test_output=all "$@" //tests/acceptance:acceptance_test
