#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Prints the folder of a Python environment with the packages of a requirements
# file, and creates it under ~/.cache the first time. A changed file gets a new
# environment. Messages go to stderr.
#
#   tests/python/environment.sh REQUIREMENTS.txt [python3]
set -euo pipefail

requirements="$1"
python="${2:-/usr/bin/python3}"
# Debian packages parts of venv separately.
version="$("$python" -c 'import ensurepip, platform; print(platform.python_version())')"
key="$(sha256sum <"$requirements" | cut -c-16)"
environment="${XDG_CACHE_HOME:-$HOME/.cache}/holdfast-venv-$version-$key"
mkdir -p "$(dirname "$environment")"
# Only one process at a time creates the environment.
exec 9>"$environment.lock"
flock 9
if [[ ! -e "$environment/done" ]]; then
  rm -rf "$environment"
  "$python" -m venv "$environment" >&2
  "$environment/bin/pip" install --quiet --no-input --disable-pip-version-check \
    --requirement "$requirements" >&2
  touch "$environment/done"
fi
echo "$environment"
