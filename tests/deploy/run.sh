#!/bin/bash
# Tests what puts Holdfast into a cluster: deploy/k8s rendered and validated, and run as pods on
# this machine; deploy/docker built, and run once inside. The last line is
# "N passed, N failed, N skipped".
#
#   tests/deploy/run.sh [names of tests, as for unittest; default: all]
#
# Needs root, and Debian's and Python's package registries. What cannot run here is skipped,
# and says why. Builds the programs and the wheel, unless HOLDFAST_PROGRAMS names a folder that
# has them, and HOLDFAST_WHEEL the wheel.
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
