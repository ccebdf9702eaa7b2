// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_BENCH_CLIENT_H_
#define HOLDFAST_CLI_BENCH_CLIENT_H_

#include <string>
#include <vector>

namespace holdfast {

// `holdfast bench client`, which the other benchmarks start as separate
// processes next to their ps. Not for users. The role is set by --role:
//
//   wire     a worker of an asynchronous job: measures --ops and writes one
//            line of JSON for each to --result_file
//   control  a reader: measures GetStatus
//   load     a worker that pushes until it is killed, or waits if --bytes=0
//   train    a worker that pushes and pulls until it is killed
//   rows     the worker of an embedding table, which it fills: measures --ops
//            and writes one line of JSON for each to --result_file
//
// Returns the exit code.
int BenchClient(const std::vector<std::string>& args);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_BENCH_CLIENT_H_
