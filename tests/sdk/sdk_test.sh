#!/bin/bash
# Builds examples/custom_data outside the tree, with g++ and what //worker:sdk packs, and has the
# worker that comes out train.
set -euo pipefail

prefix="$TEST_TMPDIR/prefix"
mkdir -p "$prefix" "$TEST_TMPDIR/mine"
tar --extract --file=worker/sdk.tar --directory="$prefix"
# As in a user's own project: nothing but the example's files, under its own path.
cp --dereference --parents examples/custom_data/* "$TEST_TMPDIR/mine"

programs="$PWD"
cd "$TEST_TMPDIR/mine"
export PKG_CONFIG_PATH="$prefix/lib/pkgconfig"
for source in main rings_dataset; do
  # shellcheck disable=SC2046  # Several flags.
  g++ $(pkg-config --cflags holdfast_worker) -I. -O0 -c "examples/custom_data/$source.cc" \
    -o "$source.o" &
done
wait
# shellcheck disable=SC2046
g++ main.o rings_dataset.o $(pkg-config --libs holdfast_worker) -o worker

"$programs/cli/holdfast" local --job=examples/custom_data/rings.textproto --worker_binary=./worker \
  --ps=1 --workers=1 --run_dir="$TEST_TMPDIR/run" >"$TEST_TMPDIR/log" 2>&1 || {
  cat "$TEST_TMPDIR/log"
  exit 1
}
grep -q '"test_accuracy": \(1\|0\.9[89]\)' "$TEST_TMPDIR/run/result.json" || {
  cat "$TEST_TMPDIR/run/result.json"
  echo "the worker has not learned the rings"
  exit 1
}
