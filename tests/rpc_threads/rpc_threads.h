#ifndef HOLDFAST_TESTS_RPC_THREADS_RPC_THREADS_H_
#define HOLDFAST_TESTS_RPC_THREADS_RPC_THREADS_H_

#include <string>
#include <vector>

namespace holdfast {

// The --rpc_threads that ps under test get: what the BUILD rule of the test
// (rpc_threads.bzl) says, else 1, which is also the default of a machine with
// fewer than 8 cores.
int RpcThreadsUnderTest();

// The command line of a program under test, with --rpc_threads for the ps that
// it is or starts (`holdfast local` and `holdfast bench`). Unchanged where the
// BUILD rule says nothing.
std::vector<std::string> WithRpcThreads(std::vector<std::string> args);

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_RPC_THREADS_RPC_THREADS_H_
