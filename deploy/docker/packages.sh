#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# In the Dockerfile: installs Debian packages, and with CUDA set (a version, "13-0") NVIDIA's.
#
#   packages.sh build    what a build with CUDA needs in addition to deploy/local/setup.sh
#   packages.sh run      what the programs need, and PACKAGES
set -euo pipefail

export DEBIAN_FRONTEND=noninteractive
install() {
  apt-get -qq install --yes --no-install-recommends "$@" >/dev/null
}
apt-get -qq update

if [[ -n "${CUDA:-}" ]]; then
  install ca-certificates curl
  keyring=cuda-keyring_1.1-1_all.deb
  curl -fsSL -o "/tmp/$keyring" \
    "https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64/$keyring"
  dpkg -i "/tmp/$keyring"
  rm "/tmp/$keyring"
  apt-get -qq update
fi

case "$1" in
  build)
    install "cuda-nvcc-$CUDA" "cuda-cudart-dev-$CUDA" "libcublas-dev-$CUDA"
    ;;
  run)
    # The libraries to which the programs link; apt adds their dependencies.
    install libabsl20220623 libgoogle-glog0v6 libgrpc++1.51 libisal2 libjpeg62-turbo \
      libopenblas0-pthread libpng16-16 libprometheus-cpp-core1.0 libprotobuf32 libre2-9 libssl3 \
      libzip4 \
      ${CUDA:+"libcublas-$CUDA"} ${PACKAGES:-}
    ;;
esac
rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb
