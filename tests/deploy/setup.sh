#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs what tests/deploy needs besides the build's dependencies: Debian
# packages, and a Python environment under ~/.cache with the schemas of
# Kubernetes. Prints the environment's folder. Messages go to stderr.
set -euo pipefail

readonly kubernetes_validate=1.37.0

"$(dirname "${BASH_SOURCE[0]}")"/../../deploy/local/setup.sh \
  buildah debootstrap iproute2 python3-venv
environment="${XDG_CACHE_HOME:-$HOME/.cache}/holdfast-test-venv-$kubernetes_validate"
if [[ ! -e "$environment/done" ]]; then
  rm -rf "$environment"
  /usr/bin/python3 -m venv "$environment" >&2
  # Also installs PyYAML and jsonschema.
  "$environment/bin/pip" install --quiet --disable-pip-version-check \
    "kubernetes-validate==$kubernetes_validate" >&2
  touch "$environment/done"
fi
echo "$environment"
