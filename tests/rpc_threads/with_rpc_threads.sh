#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# with_rpc_threads.sh N TEST [ARGUMENT ...]: runs a test whose ps use
# --rpc_threads=N (rpc_threads.h).
export HOLDFAST_TEST_RPC_THREADS="$1"
shift
exec "$@"
