#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Creates a folder to run on another machine with a GPU: the programs, the
# comparisons of GPU and CPU, a benchmark, the example jobs, some images, and
# every library that they need except the C library and CUDA's own. That machine
# needs x86-64 Linux with glibc 2.36 or later, NVIDIA's driver, and cuBLAS
# (docs/operating/gpu.md).
#
#   tests/gpu/bundle.sh FOLDER [flags of bazel build]
#
# On that machine, FOLDER/run.sh runs everything. The script also creates
# FOLDER.tar.xz, which contains the folder's files.
set -euo pipefail

if (($# < 1)); then
  echo "usage: tests/gpu/bundle.sh FOLDER [flags of bazel build]" >&2
  exit 2
fi
folder="$1"
shift
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)"
mkdir -p "$folder"
folder="$(cd "$folder" && pwd -P)"
cd "$root"

readonly limit_mib=64
readonly targets=(
  //cli:holdfast
  //examples/cuda_model:gelu_worker
  //ps_server
  //tests/gpu:gpu_benchmark
  //tests/gpu:gpu_parity_test
  //worker:ps_worker
)
# The libraries are in the programs' folder. DT_RPATH, unlike DT_RUNPATH, is
# also searched for the libraries' own libraries, and for libraries that are
# loaded later.
flags=('--linkopt=-Wl,--disable-new-dtags' '--linkopt=-Wl,-rpath,$ORIGIN' --strip=always)
/usr/bin/bazel build "$@" "${flags[@]}" "${targets[@]}" >&2
bin="$(/usr/bin/bazel info "$@" "${flags[@]}" bazel-bin 2>/dev/null)"

for target in "${targets[@]}"; do
  file="${target#//}"
  [[ "$file" == *:* ]] || file="$file:${file##*/}"
  install -m 755 "$bin/${file/://}" "$folder/"
done

install -m 755 tests/gpu/cluster_test.sh tests/gpu/run.sh "$folder/"
install -m 755 tests/gpu/hidden.py tests/gpu/torch_benchmark.py "$folder/"
mkdir -p "$folder/examples/cuda_model"
install -m 644 examples/*.textproto "$folder/examples/"
install -m 644 examples/cuda_model/*.textproto "$folder/examples/cuda_model/"

# The first 2000 images of Fashion-MNIST's test set, if Debian's package is
# installed. The format is plain IDX: a header, whose second word is the number
# of items, and bytes.
readonly fashion=/usr/share/datasets/fashion-mnist/t10k
if [[ -e "$fashion-images-idx3-ubyte.gz" ]]; then
  mkdir -p "$folder/data"
  for kind in "images-idx3 16 784" "labels-idx1 8 1"; do
    read -r name header size <<<"$kind"
    python3 - "$fashion-$name-ubyte.gz" "$folder/data/t10k-$name-ubyte.gz" "$header" "$size" <<'CUT'
import gzip, sys
source, target, header, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
data = gzip.open(source).read(header + 2000 * size)
with gzip.GzipFile(target, "wb", mtime=0) as out:
    out.write(data[:4] + (2000).to_bytes(4, "big") + data[8:])
CUT
  done
fi

# Half of OpenBLAS is LAPACK, which is never called. So a smaller library is
# linked from the same version's archive, with only the functions that are
# called; it must exist before libraries are collected.
called="$(comm -12 \
  <(nm -D --undefined-only "$folder/ps_worker" | awk '{ print $2 }' | sort -u) \
  <(nm -D --defined-only "$(ldd "$folder/ps_worker" | awk '/libopenblas/ { print $3 }')" |
    awk '{ sub("@.*", "", $3); print $3 }' | grep -v '^_' | sort -u))"
# OpenBLAS has code for each kind of CPU; kinds that are too old for a machine
# with such a GPU get the plainest code, which runs on all.
readonly old_cores=(ATOM BARCELONA BOBCAT BULLDOZER CORE2 DUNNINGTON EXCAVATOR NANO OPTERON
  OPTERON_SSE3 PENRYN PILEDRIVER STEAMROLLER)
# shellcheck disable=SC2046 # one word for each core and function
gcc -shared -s -o "$folder/libopenblas.so.0" -Wl,-soname,libopenblas.so.0 \
  $(printf -- '-Wl,--defsym,gotoblas_%s=gotoblas_PRESCOTT ' "${old_cores[@]}") \
  $(sed 's/^/-Wl,-u,/' <<<"$called") \
  "$(pkg-config --variable=libdir openblas)/libopenblas.a" -lpthread -lm

# The parts of the C library must match each other and the machine's loader, so
# they are not copied.
readonly c_library='^(ld-linux.*|lib(c|m|dl|rt|pthread|resolv|util|anl|mvec))\.so'
for program in "$folder"/*; do
  [[ -f "$program" && "$(head -c 4 "$program")" == $'\x7fELF' ]] || continue
  ldd "$program"
done | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
  while read -r library; do
    name="${library##*/}"
    [[ "$library" != "$folder"/* && ! "$name" =~ $c_library ]] || continue
    install -m 644 "$library" "$folder/$name"
    strip --strip-unneeded "$folder/$name" 2>/dev/null || true
  done

tar -C "$folder" -cJf "$folder.tar.xz" .
size_mib="$(du --apparent-size -sm "$folder.tar.xz" | cut -f1)"
echo "$folder.tar.xz: $size_mib MiB"
if ((size_mib >= limit_mib)); then
  echo "bundle.sh: more than $limit_mib MiB" >&2
  exit 1
fi
