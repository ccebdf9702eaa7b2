#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Trains a job on this machine: installs what is missing, builds what has
# changed, and becomes `holdfast local`.
#
#   deploy/local/train.sh [JOB.textproto] [flags of holdfast local]
#
# Without a JOB, trains an MLP on Fashion-MNIST. Paths are relative to the current folder.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)"
job="$root/examples/fashion_mnist_mlp.textproto"
if (($# > 0)) && [[ "$1" != -* ]]; then
  job="$1"
  shift
fi

"$root/deploy/local/setup.sh"

bazel() { (cd "$root" && /usr/bin/bazel "$@" </dev/null); }

# Progress is shown only on a terminal; otherwise only warnings and errors.
flags=(--show_result=0 --ui_event_filters=-info)
if [[ ! -t 2 ]]; then
  flags+=(--noshow_progress)
  [[ -x "$root/bazel-bin/cli/holdfast" ]] || echo "train: building (takes minutes the first time)" >&2
fi
bazel build "${flags[@]}" //cli:holdfast //ps_server:ps_server //worker:ps_worker >&2
bin="$(bazel info bazel-bin 2>/dev/null)"

# With exec, signals sent to this script reach holdfast.
exec "$bin/cli/holdfast" local --job="$job" "$@"
