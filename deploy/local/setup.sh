#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs what the build needs on Debian 12, and the packages that are named. Returns at once if
# everything is installed. Messages go to stderr.
#
#   deploy/local/setup.sh [PACKAGE...]
set -euo pipefail

readonly packages=(
  "$@"
  bazel-bootstrap
  clang-14 # for the fuzzers of common/rpc and common/data, like libclang-rt-14-dev
  cmake # for bazel/portable, like dpkg-dev
  dataset-fashion-mnist # data for the examples
  dpkg-dev
  g++
  iproute2 # tests/faults, network namespaces
  libabsl-dev
  libbenchmark-dev
  libboost1.74-dev
  libclang-rt-14-dev
  libgmock-dev
  libgoogle-glog-dev
  libgrpc++-dev
  libgtest-dev
  libisal-dev
  libjpeg62-turbo-dev
  libopenblas-dev
  libpng-dev
  libprotobuf-dev
  libre2-dev
  libssl-dev
  libxxhash-dev
  libzip-dev
  pkg-config
  prometheus # tests/metrics
  prometheus-cpp-dev
  protobuf-compiler
  protobuf-compiler-grpc
  python3-grpcio  # tests/interop, like the next
  python3-minimal # tests/run.sh counts tests with it
  python3-numpy   # python/
  python3-protobuf
  python3-venv # python/build_wheel.sh
  zlib1g-dev
)

say() { echo "setup: $*" >&2; }

is_debian_12() {
  [[ -r /etc/os-release ]] && command -v apt-get >/dev/null || return 1
  (
    . /etc/os-release
    [[ "${ID:-}${VERSION_ID:-}" == debian12 || "${VERSION_CODENAME:-}" == bookworm ||
      "${DEBIAN_CODENAME:-}" == bookworm ]]
  )
}

missing=("${packages[@]}")
if command -v dpkg-query >/dev/null; then
  installed=" $(dpkg-query --show --showformat='${db:Status-Abbrev}${Package} ' \
    "${packages[@]}" 2>/dev/null || true)"
  missing=()
  for package in "${packages[@]}"; do
    # "ii " means "wanted, installed"; apt must repair any other state.
    [[ "$installed" == *" ii $package "* || "$installed" == *" hi $package "* ]] ||
      missing+=("$package")
  done
fi
((${#missing[@]} > 0)) || exit 0

if ! is_debian_12; then
  say "this script installs packages on Debian 12 (bookworm) only, and these are missing:"
  say "  ${missing[*]}"
  exit 1
fi

as_root=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    say "neither root nor sudo; as root run"
    say "  apt-get install ${missing[*]}"
    exit 1
  fi
  as_root=(sudo)
fi
as_root+=(env DEBIAN_FRONTEND=noninteractive)

say "installing ${missing[*]} (takes a few minutes)"
log="$(mktemp)"
policy=
cleanup() {
  rm -f "$log"
  [[ -z "$policy" ]] || "${as_root[@]}" rm -f "$policy"
}
trap cleanup EXIT
# On a machine that has just started, another apt may be running.
apt=("${as_root[@]}" apt-get -qq -o DPkg::Lock::Timeout=600)
# Slim container images lack this folder, without which Bazel's Java cannot be installed.
"${as_root[@]}" mkdir -p /usr/share/man/man1
# Packages with a service, such as Prometheus, would start it, but tests start their own. A policy
# that the machine already has is kept.
if [[ ! -e /usr/sbin/policy-rc.d ]]; then
  policy=/usr/sbin/policy-rc.d
  printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
  "${as_root[@]}" chmod 755 "$policy"
fi
# The installation may succeed without the newest lists; otherwise it says why not.
"${apt[@]}" update </dev/null >>"$log" 2>&1 || true
if ! "${apt[@]}" install --yes --no-install-recommends "${missing[@]}" </dev/null >>"$log" 2>&1; then
  tail -n 40 "$log" >&2
  say "apt-get could not install ${missing[*]}"
  exit 1
fi
# Services that were not here before must not start at the next boot either.
if [[ " ${missing[*]} " == *" prometheus "* ]] && command -v systemctl >/dev/null; then
  "${as_root[@]}" systemctl disable prometheus.service >>"$log" 2>&1 || true
fi
say "done"
