#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Run by the Dockerfile in the repository's root: puts the programs into a folder; either those of
# the folder PROGRAMS, or built here.
set -euo pipefail

out="$1"
mkdir -p "$out"
if [[ -n "${PROGRAMS:-}" ]]; then
  install -m 755 -t "$out" "$PROGRAMS"/{holdfast,ps_server,ps_worker}
  exit
fi
deploy/local/setup.sh
if [[ -n "${CUDA:-}" ]]; then deploy/docker/packages.sh build; fi
# Bazel's sandbox does not work in a container.
/usr/bin/bazel build --spawn_strategy=local --strip=always \
  //cli:holdfast //ps_server //worker:ps_worker
install -m 755 -t "$out" bazel-bin/{cli/holdfast,ps_server/ps_server,worker/ps_worker}
