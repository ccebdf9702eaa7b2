#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Trains click models on Criteo's Display Advertising Challenge, whose train.txt
# (45.8 million lines, 11 GB) must be obtained from Criteo or Kaggle. Trains on
# the first six sevenths once and tests on the last seventh, in the order of the
# file, as MLPerf and DeepRec do.
#
#   tests/benchmark/criteo.sh TRAIN.txt FOLDER [models; default: wide_and_deep dlrm]
#
# Needs 25 GB in FOLDER, and an optimized build. Published results to be
# reached:
#
#   DeepRec, Wide & Deep, Kaggle's data: AUC 0.7598 at 16,394 examples/s on 8 vCPUs
#   MLPerf, DLRM, the terabyte's data:   AUC 0.8025
#
# Holdfast has no figures yet: its authors have not had the data.
set -euo pipefail

train="$1"
folder="$2"
shift 2
models=("$@")
[[ ${#models[@]} -gt 0 ]] || models=(wide_and_deep dlrm)
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

mkdir -p "$folder/clicks" "$folder/cache"
if [[ ! -e "$folder/clicks/test-0.tsv" ]]; then
  lines="$(wc -l <"$train")"
  head -n "$((lines * 6 / 7))" "$train" >"$folder/clicks/train-0.tsv"
  tail -n "+$((lines * 6 / 7 + 1))" "$train" >"$folder/clicks/part.tmp"
  mv "$folder/clicks/part.tmp" "$folder/clicks/test-0.tsv"
fi
for model in "${models[@]}"; do
  job="$folder/$model.textproto"
  sed -e "s|/tmp/clicks|$folder/clicks|; s|^epochs: .*|epochs: 1|" \
    "examples/criteo_$model.textproto" >"$job"
  bazel-bin/cli/holdfast local --job="$job" --run_dir="$folder/run_$model" \
    --worker_flags="--data_cache_dir=$folder/cache"
done
