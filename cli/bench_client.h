#ifndef HOLDFAST_CLI_BENCH_CLIENT_H_
#define HOLDFAST_CLI_BENCH_CLIENT_H_

#include <string>
#include <vector>

namespace holdfast {

// `holdfast bench client`, as the other benchmarks start it beside their ps,
// each a process of its own. Not for users. By --role:
//
//   wire     a worker of an asynchronous job: measures --ops, a line of JSON
//   each
//            in --result_file
//   control  a reader: measures GetStatus
//   load     a worker that pushes until it is killed, or, with --bytes=0, waits
//   train    a worker that pushes and pulls until it is killed
//   rows     the worker of an embedding table, which it fills: measures --ops,
//            a line of JSON each in --result_file
//
// Returns the exit code.
int BenchClient(const std::vector<std::string>& args);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_BENCH_CLIENT_H_
