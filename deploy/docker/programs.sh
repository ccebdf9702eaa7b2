#!/bin/bash
# In the Dockerfile, from the repository's root: puts the programs into a folder; those of the
# folder PROGRAMS, or else built here.
set -euo pipefail

out="$1"
mkdir -p "$out"
if [[ -n "${PROGRAMS:-}" ]]; then
  install -m 755 -t "$out" "$PROGRAMS"/{holdfast,ps_server,ps_worker}
  exit
fi
deploy/local/setup.sh
if [[ -n "${CUDA:-}" ]]; then deploy/docker/packages.sh build; fi
# A container has no sandbox of Bazel's within.
/usr/bin/bazel build --spawn_strategy=local --strip=always \
  //cli:holdfast //ps_server //worker:ps_worker
install -m 755 -t "$out" bazel-bin/{cli/holdfast,ps_server/ps_server,worker/ps_worker}
