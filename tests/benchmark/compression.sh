#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Measures what compression saves and costs: test accuracy and pushed bytes of
# the example jobs with each encoding compared with float32, on the same
# examples.
#
#   tests/benchmark/compression.sh [JOB...; default fashion_mnist_softmax fashion_mnist_mlp]
#
# Bytes are the kernel's count of what the ps have received, from TCP_INFO of
# each of their sockets when it closes. So they include everything besides
# gradients: names, gRPC's frames, requests for values, leases. Each run has its
# own network for that.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
deploy/local/setup.sh
/usr/bin/bazel build //cli:holdfast //ps_server //worker:ps_worker 2>/dev/null
exec /usr/bin/python3 tests/benchmark/compression.py "$(/usr/bin/bazel info bazel-bin 2>/dev/null)" "$@"
