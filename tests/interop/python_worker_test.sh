#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Generates the Python stubs from proto/ alone, with the generator that the
# package grpcio-tools also contains, and runs python_worker_test.py with them.
set -euo pipefail

stubs="$(mktemp -d "${TEST_TMPDIR:-/tmp}/stubs.XXXXXX")"
protoc --proto_path=. --python_out="$stubs" --grpc_python_out="$stubs" \
  --plugin=protoc-gen-grpc_python="$(command -v grpc_python_plugin)" proto/*.proto
exec /usr/bin/python3 tests/interop/python_worker_test.py "$stubs" "$1" \
  tests/interop/python_worker.py "$2"
