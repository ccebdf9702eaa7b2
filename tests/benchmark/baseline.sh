#!/bin/bash
# Steps per second of the example jobs, each run several times in turn with the
# others: a line per job with the median and the extremes.
#
#   tests/benchmark/baseline.sh [ROUNDS; default 5]
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
rounds="${1:-5}"
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT

# 600 steps tell the rate of the MLP, without evaluations in between.
sed -e 's/^steps: .*/steps: 600/' -e '/^evaluation /d' \
  examples/fashion_mnist_mlp.textproto >"$scratch/fashion_mnist_mlp.textproto"
cp examples/fashion_mnist_softmax.textproto "$scratch"

for ((round = 0; round < rounds; ++round)); do
  for job in softmax mlp; do
    deploy/local/train.sh "$scratch/fashion_mnist_$job.textproto" \
      --run_dir="$scratch/$job-$round" >"$scratch/output" 2>&1 || {
      cat "$scratch/output" >&2
      exit 1
    }
  done
done

/usr/bin/python3 - "$scratch" "$rounds" <<'REPORT'
import json
import statistics
import sys

for job in ("softmax", "mlp"):
    results = []
    for round in range(int(sys.argv[2])):
        with open(f"{sys.argv[1]}/{job}-{round}/result.json", encoding="utf-8") as file:
            results.append(json.load(file))
    rates = [result["steps_per_second"] for result in results]
    print(f"{job}: {results[0]['ps']} ps, {results[0]['workers']} workers, "
          f"median {statistics.median(rates):.1f} steps/s "
          f"({min(rates):.1f} to {max(rates):.1f}, {len(rates)} rounds)")
REPORT
