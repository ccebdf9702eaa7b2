#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Trains each of the example jobs end to end on the first GPU, with 2 ps and 2
# workers, twice: both runs must succeed, compute on the GPU, and end with the
# same values. The perceptron is also trained in both kinds of 16 bits, the
# ResNet with 16-bit activations, and a model with kernels of its own by a worker
# of its own. Prints how many cases ran; without a GPU, none do.
#
#   cluster_test.sh FOLDER      with holdfast, ps_server, ps_worker, gelu_worker,
#                               examples/ and, perhaps, data/ (bundle.sh)
#   cluster_test.sh FILE...     the programs and the job files
#
# DEVICE=cpu tests this script where there is no GPU.
set -euo pipefail

scratch="$(mktemp -d)"
readonly scratch
trap 'rm -rf "$scratch"' EXIT
if (($# == 1)); then
  folder="$(cd "$1" && pwd -P)"
else
  folder="$scratch/programs"
  mkdir -p "$folder/examples"
  for file in "$@"; do
    [[ "$file" == *.textproto ]] && to="$folder/examples" || to="$folder"
    cp "$file" "$to"
  done
fi
readonly jobs=(softmax mlp mlp.bfloat16 mlp.float16 cnn resnet resnet.activations gelu)
readonly device="${DEVICE:-cuda:0}"

# Images to train on: 2000 of Fashion-MNIST, or as many generated ones.
data="$folder/data"
if [[ ! -e "$data" ]]; then
  data="$scratch/data"
  mkdir "$data"
  {
    printf '\0\0\010\003\0\0\007\320\0\0\0\034\0\0\0\034'
    # Digits that do not repeat; `head` ignores the excess.
    seq 1 300000 | tr -d '\n' | head -c $((2000 * 28 * 28)) || true
  } >"$data/t10k-images-idx3-ubyte.gz"
  {
    printf '\0\0\010\001\0\0\007\320'
    for _ in {1..200}; do printf '\0\1\2\3\4\5\6\7\10\11'; done
  } >"$data/t10k-labels-idx1-ubyte.gz"
fi

# Trains $1, a job's name and perhaps a precision, for 100 steps; $2 is the name
# of the run, part of the names of its output and result.
train() {
  local job="$scratch/$1.textproto" name="${1%.*}" worker="$folder/ps_worker" file
  [[ "$name" != gelu ]] || worker="$folder/gelu_worker"
  file="$(find "$folder/examples" -name "fashion_mnist_$name.textproto" | head -n 1)"
  sed -E -e "s#\"[^\"]*/(train|t10k)-(images|labels)-#\"$data/t10k-\2-#" \
    -e 's/^(epochs|steps):.*/steps: 100/' "$file" >"$job"
  case "$1" in
  *.activations) echo 'precision { bfloat16 { activations: true } }' >>"$job" ;;
  *.*) echo "precision { ${1#*.} {} }" >>"$job" ;;
  esac
  "$folder/holdfast" local --job="$job" --ps=2 --workers=2 --worker_binary="$worker" \
    --worker_flags=--device="$device" --run_dir="$scratch/$1.$2" >"$scratch/$1.$2.log" 2>&1
}

digest_of() { sed -n 's/.*"digest": "\(.*\)".*/\1/p' "$scratch/$1.$2/result.json"; }

fail() {
  echo "$1: $2" >&2
  cat "$scratch/$1".*.log >&2
  exit 1
}

cases=0
for job in "${jobs[@]}"; do
  code=0
  train "$job" first || code=$?
  # The worker's reason: no GPU, no driver, no cuBLAS, or no CUDA in this build.
  reason="$(grep -rhoE -- "--device=$device: .*" "$scratch/$job.first"* | head -n 1 || true)"
  if ((cases == 0 && code != 0)) && [[ -n "$reason" ]]; then
    echo "no case ran: $reason"
    exit 0
  fi
  ((code == 0)) || fail "$job" "exit code $code"
  train "$job" second || fail "$job" "the second run failed"
  [[ "$device" == cpu ]] || grep -q '"gpu": {' "$scratch/$job.first/result.json" ||
    fail "$job" "not on a GPU"
  [[ -n "$(digest_of "$job" first)" ]] || fail "$job" "no digest"
  [[ "$(digest_of "$job" first)" == "$(digest_of "$job" second)" ]] ||
    fail "$job" "two runs came to different values"
  cases=$((cases + 1))
done
echo "$cases cases ran: 2 ps and 2 workers on $device, 100 steps, twice each"
