#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What the suite has no time for: jobs with two faults in every schedule, and simulations with 500
# schedules each instead of 200. A quarter of an hour on 2 cores.
#
#   tests/soak.sh [flags of bazel test]
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
tests/run.sh --test_env=HOLDFAST_SIMULATION_SCHEDULES=500 "$@" \
  //tests/exploration:two_faults_test //tests/simulation/...
