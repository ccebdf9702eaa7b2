#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds the wheel: one for every Python from 3.10 on, with the library,
# ps_server, ps_worker and holdfast, which require only glibc from the system.
# The same sources give the same bytes.
#
#   python/build_wheel.sh --out=DIR [--binaries=DIR]
#
# --binaries: a folder with libholdfast.so, ps_server, ps_worker and holdfast that were built
# elsewhere (with --config=portable), instead of a build here. Prints the path of the wheel.
# Python packages for the build come from the configured index, once, into ~/.cache.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
readonly programs=(holdfast ps_server ps_worker)
out=""
binaries=""
for argument in "$@"; do
  case "$argument" in
    --out=?*) out="${argument#*=}" ;;
    --binaries=?*) binaries="${argument#*=}" ;;
    *)
      sed -n '3,/^set /p' "$0" | sed '$d; s/^# \{0,1\}//' >&2
      exit 2
      ;;
  esac
done
if [[ -z "$out" ]]; then
  echo "build_wheel: --out is required, the folder for the wheel" >&2
  exit 2
fi
mkdir -p "$out"
out="$(cd "$out" && pwd -P)"

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
mkdir "$work/binaries" "$work/built" "$work/repaired"
if [[ -z "$binaries" ]]; then
  "$root/deploy/local/setup.sh"
  (
    cd "$root"
    bazel/portable/archives.sh >/dev/null
    /usr/bin/bazel build --config=portable //client/c_api:libholdfast.so //cli:holdfast \
      //ps_server //worker:ps_worker </dev/null >&2
    bin="$(/usr/bin/bazel info --config=portable bazel-bin 2>/dev/null)"
    cp "$bin"/client/c_api/libholdfast.so "$bin"/cli/holdfast "$bin"/ps_server/ps_server \
      "$bin"/worker/ps_worker "$work/built"
  )
  binaries="$work/built"
fi
for file in libholdfast.so "${programs[@]}"; do
  strip --strip-unneeded -o "$work/binaries/$file" "$binaries/$file"
  chmod 755 "$work/binaries/$file"
done

environment="$("$root/tests/python/environment.sh" "$root/python/build_requirements.txt")"
export PATH="$environment/bin:$PATH"
# The date of all files in the wheel: arbitrary, but always the same.
export SOURCE_DATE_EPOCH=1577836800
umask 022
(
  cd "$root/python"
  HOLDFAST_BINARIES="$work/binaries" python -m hatchling build --target wheel \
    --directory "$work/built" >&2
)
auditwheel repair --only-plat --wheel-dir "$work/repaired" "$work"/built/*.whl >&2
wheel="$(cd "$work/repaired" && echo *.whl)"
# A library that was copied into the wheel could clash with another copy in the
# same process.
if python -m zipfile --list "$work/repaired/$wheel" | grep -q "holdfast.libs/"; then
  echo "build_wheel: the binaries need more than glibc:" >&2
  python -m zipfile --list "$work/repaired/$wheel" | grep "holdfast.libs/" >&2
  exit 1
fi
mv "$work/repaired/$wheel" "$out/"
echo "$out/$wheel"
