#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Tests the deployment of Holdfast: deploy/k8s is rendered, validated, and run
# as pods on this machine; the images of deploy/docker are built, and run once.
# The last line is "N passed, N failed, N skipped".
#
#   tests/deploy/run.sh [names of tests, as for unittest; default: all]
#
# Needs root, Debian's packages and PyPI. Tests that cannot run here are skipped
# with a reason. Builds the programs and the wheel, unless HOLDFAST_PROGRAMS
# names a folder that has them, and HOLDFAST_WHEEL the wheel.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
environment="$(tests/deploy/setup.sh)"
built="$(mktemp -d)"
trap 'rm -rf "$built"' EXIT
if [[ -z "${HOLDFAST_PROGRAMS:-}" ]]; then
  HOLDFAST_PROGRAMS="$built/programs"
  chmod 755 "$built"
  tests/deploy/programs.sh "$HOLDFAST_PROGRAMS"
fi
if [[ -z "${HOLDFAST_WHEEL:-}" ]]; then
  HOLDFAST_WHEEL="$(python/build_wheel.sh --out="$built/wheel")"
fi
export HOLDFAST_PROGRAMS HOLDFAST_WHEEL
PYTHONDONTWRITEBYTECODE=1 "$environment/bin/python" tests/run_unittests.py tests/deploy "$@"
