#!/bin/bash
# Makes a folder that runs on another machine with a GPU: the programs, the
# comparison of GPU and CPU, a small job, and every library that they need but
# the C library and CUDA's own. That machine needs an x86-64 Linux with glibc 2.36
# or later, NVIDIA's driver, and cuBLAS (docs/gpu.md).
#
#   tests/gpu/bundle.sh FOLDER [flags of bazel build]
#
# There, FOLDER/run.sh compares GPU and CPU, and trains a job on the GPU.
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
  //ps_server
  //tests/gpu:gpu_parity_test
  //worker:ps_worker
)
# The libraries lie beside the programs. DT_RPATH, unlike DT_RUNPATH, is searched
# for the libraries' own libraries too, and for what is loaded later.
flags=(--linkopt=-Wl,--disable-new-dtags '--linkopt=-Wl,-rpath,$ORIGIN' --strip=always)
/usr/bin/bazel build "$@" "${flags[@]}" "${targets[@]}" >&2
bin="$(/usr/bin/bazel info "$@" "${flags[@]}" bazel-bin 2>/dev/null)"

for target in "${targets[@]}"; do
  file="${target#//}"
  [[ "$file" == *:* ]] || file="$file:${file##*/}"
  install -m 755 "$bin/${file/://}" "$folder/"
done

# Half of OpenBLAS is LAPACK, which nobody calls: what is called, of the same
# version's archive, fits. Lies there before libraries are looked for.
called="$(comm -12 \
  <(nm -D --undefined-only "$folder/ps_worker" | awk '{ print $2 }' | sort -u) \
  <(nm -D --defined-only "$(ldd "$folder/ps_worker" | awk '/libopenblas/ { print $3 }')" |
    awk '{ sub("@.*", "", $3); print $3 }' | grep -v '^_' | sort -u))"
gcc -shared -s -o "$folder/libopenblas.so.0" -Wl,-soname,libopenblas.so.0 \
  $(sed 's/^/-Wl,-u,/' <<<"$called") \
  "$(pkg-config --variable=libdir openblas)/libopenblas.a" -lpthread -lm

# The C library's parts belong together, and to the machine's loader.
readonly c_library='^(ld-linux.*|lib(c|m|dl|rt|pthread|resolv|util|anl|mvec))\.so'
for program in "$folder"/*; do
  [[ "$(head -c 4 "$program")" == $'\x7fELF' ]] || continue
  ldd "$program"
done | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
  while read -r library; do
    name="${library##*/}"
    [[ "$library" != "$folder"/* && ! "$name" =~ $c_library ]] || continue
    install -m 644 "$library" "$folder/$name"
    strip --strip-unneeded "$folder/$name" 2>/dev/null || true
  done

cat >"$folder/run.sh" <<'RUN'
#!/bin/bash
# Compares GPU and CPU; trains a job of 2 ps and 2 workers on the GPU where there
# are data: run.sh [JOB_FILE].
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)"
"$here/gpu_parity_test" --gtest_brief=1
(($# == 0)) || "$here/holdfast" local --job="$1" --ps=2 --workers=2 \
  --worker_flags=--device=cuda:0 --run_dir="$(mktemp -d)"
RUN
chmod 755 "$folder/run.sh"

size_mib="$(du --apparent-size -sm "$folder" | cut -f1)"
echo "$folder: $size_mib MiB"
if ((size_mib >= limit_mib)); then
  echo "bundle.sh: more than $limit_mib MiB" >&2
  exit 1
fi
