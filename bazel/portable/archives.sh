#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds the static, position-independent archives that --config=portable links
# and that Debian does not have, and prints the folder that holds them.
#
#   bazel/portable/archives.sh
#
# Debian's libprotobuf.a, libre2.a and libabsl_*.a are not position-independent,
# its libglog.a needs libraries without such archives, and libzip, libisal and
# prometheus-cpp have no archives. So these are built from Debian's source
# packages, in the versions of the installed packages and against their headers.
# gRPC, OpenSSL, c-ares, zlib, libpng, libjpeg and OpenBLAS come from Debian's
# archives.
#
# Needs apt-get, dpkg-dev, cmake and the packages of deploy/local/setup.sh, but
# not root. The script uses a sources list of its own and leaves the system's
# lists unchanged. The result is kept in ~/.cache/holdfast-portable, by
# versions.
set -euo pipefail

script=$(readlink -f "$0")
cache=${XDG_CACHE_HOME:-$HOME/.cache}/holdfast-portable

# Source packages, and the installed packages against whose headers they are
# compiled.
packages=(
  abseil=libabsl-dev
  re2=libre2-dev
  prometheus-cpp=prometheus-cpp-dev
  protobuf=libprotobuf-dev
  libzip=libzip-dev
  libisal=libisal-dev
  google-glog=libgoogle-glog-dev
)

fail() {
  echo "archives.sh: $*" >&2
  exit 1
}

declare -A versions
for pair in "${packages[@]}"; do
  # The version of the source, without the suffix of a rebuild: 1.7.3-1+b1.
  versions[${pair%%=*}]=$(dpkg-query -W -f '${source:Version}' "${pair##*=}") ||
    fail "${pair##*=} is not installed: run deploy/local/setup.sh"
done
key=$(
  {
    for pair in "${packages[@]}"; do
      echo "${pair%%=*} ${versions[${pair%%=*}]}"
    done
    gcc -dumpfullversion
    cat "$script"
  } | sha256sum | cut -c1-16
)
done=$cache/$key
if [ -d "$done" ]; then
  echo "$done"
  exit
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
exec 3>&1 1>&2
cd "$work"

# ---- The sources ----

keyring=/usr/share/keyrings/debian-archive-keyring.gpg
mkdir -p lists/partial cache/archives/partial
# The origin of this machine's packages.
# shellcheck disable=SC2016
apt-get indextargets --format '$(SITE) $(RELEASE)' 'Created-By: Packages' |
  sort -u | while read -r site suite; do
  for kind in deb-src deb; do
    echo "$kind [signed-by=$keyring] $site $suite main"
  done
done > sources.list

apt() {
  "$1" -q -o Dir::Etc::sourcelist="$work/sources.list" \
    -o Dir::Etc::sourceparts=- -o Dir::State::lists="$work/lists" \
    -o Dir::Cache="$work/cache" -o APT::Get::List-Cleanup=0 \
    -o APT::Sandbox::User=root "${@:2}"
}
apt apt-get update
for pair in "${packages[@]}"; do
  name=${pair%%=*}
  apt apt-get source "$name=${versions[$name]}" ||
    fail "the source of $name ${versions[$name]} cannot be had"
  mv "$name"-*/ "$name"
done
# The assembler for libisal's checksums.
nasm=$(command -v nasm || true)
if [ -z "$nasm" ]; then
  apt apt-get download nasm
  dpkg -x nasm_*.deb nasm
  nasm=$work/nasm/usr/bin/nasm
fi

# ---- The archives ----

flags="-O2 -fPIC -DNDEBUG -ffunction-sections -fdata-sections -w"
# archive NAME COMPILER+FLAGS < files: makes libNAME.a of the files.
archive() {
  mkdir -p "objects/$1" lib
  while read -r file; do
    echo "$file objects/$1/$(tr / _ <<< "$file").o"
  done | xargs -P "$(nproc)" -L 1 sh -c "$2 \"\$0\" -o \"\$1\""
  ar rcs "lib/lib$1.a" "objects/$1"/*.o
}

echo "Abseil" && find abseil/absl -name '*.cc' |
  grep -vE '_test\.cc|test_|_testing|/testing|benchmark|_mock|testdata' |
  archive absl "g++ -c -std=c++17 $flags"

echo "RE2" && ls re2/re2/*.cc re2/util/{rune,strutil}.cc |
  archive re2 "g++ -c -std=c++17 $flags -Ire2"

echo "protobuf" && sed -n 's:^ *\${protobuf_SOURCE_DIR}/\(.*\.cc\)$:protobuf/\1:p' \
  protobuf/cmake/libprotobuf{,-lite}.cmake | sort -u |
  archive protobuf "g++ -c -std=c++17 $flags -DHAVE_PTHREAD -DHAVE_ZLIB -Iprotobuf/src"

# Only the part without a web server, because Holdfast's own serves the pages.
# The only generated header is the one for a shared library's exports.
echo "prometheus-cpp core"
mkdir -p exports/prometheus/detail
echo "#define PROMETHEUS_CPP_CORE_EXPORT" > exports/prometheus/detail/core_export.h
find prometheus-cpp/core/src -name '*.cc' |
  archive prometheus-cpp-core "g++ -c -std=c++17 $flags -Iexports -Iprometheus-cpp/core/include"

echo "libzip"
cmake -S libzip -B libzip/build -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_C_FLAGS="$flags" -DBUILD_SHARED_LIBS=OFF -DENABLE_BZIP2=OFF \
  -DENABLE_LZMA=OFF -DENABLE_ZSTD=OFF -DENABLE_OPENSSL=OFF \
  -DENABLE_GNUTLS=OFF -DENABLE_MBEDTLS=OFF -DENABLE_COMMONCRYPTO=OFF \
  -DBUILD_TOOLS=OFF -DBUILD_REGRESS=OFF -DBUILD_EXAMPLES=OFF -DBUILD_DOC=OFF
make --silent -C libzip/build -j "$(nproc)" zip
cp libzip/build/lib/libzip.a lib/

# Debian's build uses gflags for its flags and libunwind for stack traces, whose
# archives are not position-independent.
echo "glog"
cmake -S google-glog -B google-glog/build -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_CXX_FLAGS="$flags" -DBUILD_SHARED_LIBS=OFF -DWITH_GFLAGS=OFF \
  -DWITH_UNWIND=OFF -DWITH_GTEST=OFF -DBUILD_TESTING=OFF
make --silent -C google-glog/build -j "$(nproc)" glog
cp google-glog/build/libglog.a lib/

echo "libisal" && ls libisal/crc/*.asm |
  archive isal "$nasm -f elf64 -Ilibisal/include/ -Ilibisal/crc/ -DPIC"
ls libisal/crc/crc_base.c libisal/crc/crc64_base.c |
  archive isal_base "gcc -c $flags -Ilibisal/include"

mkdir -p "$cache"
mv lib "$done"
ln -sfn "$done" "$cache/current"
echo "$done" >&3
