#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds examples/custom_data outside the tree, with g++ and the contents of //worker:sdk, and
# trains with the resulting worker; and likewise builds and runs a program on client/cluster.h, with
# //client:sdk.
set -euo pipefail

prefix="$TEST_TMPDIR/prefix"
client_prefix="$TEST_TMPDIR/client_prefix"
mkdir -p "$prefix" "$client_prefix" "$TEST_TMPDIR/mine"
tar --extract --file=worker/sdk.tar --directory="$prefix"
tar --extract --file=client/sdk.tar --directory="$client_prefix"
for sdk in "$prefix" "$client_prefix"; do
  if compgen -G "$sdk/include/bazel*"; then
    echo "the SDK has headers of the build"
    exit 1
  fi
done
cp --dereference tests/benchmark/client_step.cc "$TEST_TMPDIR/mine"
# As in a user's own project: only the files of the example, under its own path.
cp --dereference --parents examples/custom_data/* "$TEST_TMPDIR/mine"

programs="$PWD"
cd "$TEST_TMPDIR/mine"
export PKG_CONFIG_PATH="$prefix/lib/pkgconfig:$client_prefix/lib/pkgconfig"
for source in main rings_dataset; do
  # shellcheck disable=SC2046  # Several flags.
  g++ $(pkg-config --cflags holdfast_worker) -I. -O0 -c "examples/custom_data/$source.cc" \
    -o "$source.o" &
done
# shellcheck disable=SC2046
g++ $(pkg-config --cflags holdfast_client) -O0 -c client_step.cc
wait
# shellcheck disable=SC2046
g++ client_step.o $(pkg-config --libs holdfast_client) -o client
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

cat >declaration <<'TEXT'
variables { name: "w" shape: 100 dtype: FLOAT32 initializer { zeros {} } }
optimizers { learning_rate: 0.1 sgd {} }
consistency { synchronous {} }
total_steps: 50
TEXT
cat >run_client <<'SHELL'
#!/bin/bash
set -euo pipefail
cluster="$(/usr/bin/python3 -c \
  'import json, os; print(json.dumps(json.loads(os.environ["TF_CONFIG"])["cluster"]))')"
exec ./client "$cluster" "$(cat declaration)" >cpu_per_step
SHELL
chmod +x run_client
"$programs/cli/holdfast" local --ps=1 --workers=1 --run_dir="$TEST_TMPDIR/client_run" -- \
  ./run_client >"$TEST_TMPDIR/client_log" 2>&1 || {
  cat "$TEST_TMPDIR/client_log"
  exit 1
}
grep -qE '^[0-9]+\.[0-9]+$' cpu_per_step || {
  echo "the client did not make its steps: $(cat cpu_per_step)"
  exit 1
}
