#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds the programs for the images, and copies them to a folder, which it
# creates.
#
#   tests/deploy/programs.sh FOLDER
set -euo pipefail

folder="$(realpath --canonicalize-missing "$1")"
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
/usr/bin/bazel build //cli:holdfast //ps_server //worker:ps_worker \
  //examples/custom_model:tanh_worker </dev/null
bin="$(/usr/bin/bazel info bazel-bin 2>/dev/null)"
# The pods' user must be able to read the folder, too.
install -d -m 755 "$folder"
install -m 755 -t "$folder" \
  "$bin"/cli/holdfast "$bin"/ps_server/ps_server "$bin"/worker/ps_worker \
  "$bin"/examples/custom_model/tanh_worker
