#!/bin/bash
# Installs what tests/deploy needs besides the build's dependencies: Debian
# packages, and a Python environment under ~/.cache with the schemas of
# Kubernetes. Prints the environment's folder. Messages go to stderr.
set -euo pipefail

readonly packages=(
  buildah
  debootstrap
  iproute2
  python3-venv
)
readonly kubernetes_validate=1.37.0

"$(dirname "${BASH_SOURCE[0]}")"/../../deploy/local/setup.sh
missing=()
for package in "${packages[@]}"; do
  dpkg-query --show --showformat='${db:Status-Abbrev}' "$package" 2>/dev/null | grep -q '^[ih]i ' ||
    missing+=("$package")
done
if ((${#missing[@]} > 0)); then
  log="$(mktemp)"
  if ! { apt-get -qq -o DPkg::Lock::Timeout=600 update &&
    DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=600 install --yes \
      --no-install-recommends "${missing[@]}"; } </dev/null >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "setup: apt-get could not install ${missing[*]}" >&2
    exit 1
  fi
fi

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
