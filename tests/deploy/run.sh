#!/bin/bash
# Tests what puts Holdfast into a cluster: deploy/k8s rendered and validated, and run as pods on
# this machine; deploy/docker built, and run once inside. The last line is "N passed, N failed, N skipped".
#
#   tests/deploy/run.sh [names of tests, as for unittest; default: all]
#
# Needs root, and Debian's and Python's package registries. What cannot run here is skipped,
# and says why.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
environment="$(tests/deploy/setup.sh)"
bazel=(/usr/bin/bazel)
"${bazel[@]}" build //cli:holdfast //ps_server //worker:ps_worker </dev/null
bin="$("${bazel[@]}" info bazel-bin 2>/dev/null)"

programs="$(mktemp -d)"
trap 'rm -rf "$programs"' EXIT
cp "$bin"/cli/holdfast "$bin"/ps_server/ps_server "$bin"/worker/ps_worker "$programs"
chmod 755 "$programs"
HOLDFAST_PROGRAMS="$programs" PYTHONDONTWRITEBYTECODE=1 "$environment/bin/python" \
  tests/deploy/run.py "$@"
