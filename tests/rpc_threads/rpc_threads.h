// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_TESTS_RPC_THREADS_RPC_THREADS_H_
#define HOLDFAST_TESTS_RPC_THREADS_RPC_THREADS_H_

#include <string>
#include <vector>

namespace holdfast {

// The --rpc_threads value of the ps under test: the one that the BUILD rule of
// the test gives (rpc_threads.bzl), else 1, which is also the default on a
// machine with fewer than 8 cores.
int RpcThreadsUnderTest();

// The command line of a program under test, with --rpc_threads for the ps that
// it is or starts (`holdfast local` and `holdfast bench`). Unchanged if the
// BUILD rule gives no value.
std::vector<std::string> WithRpcThreads(std::vector<std::string> args);

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_RPC_THREADS_RPC_THREADS_H_
