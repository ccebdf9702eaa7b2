// SPDX-License-Identifier: Apache-2.0
#include "tests/rpc_threads/rpc_threads.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "glog/logging.h"

namespace holdfast {
namespace {

// Set by with_rpc_threads.sh.
const char* Variable() { return std::getenv("HOLDFAST_TEST_RPC_THREADS"); }

}  // namespace

int RpcThreadsUnderTest() {
  if (Variable() == nullptr) return 1;
  int threads;
  CHECK(absl::SimpleAtoi(Variable(), &threads)) << Variable();
  return threads;
}

std::vector<std::string> WithRpcThreads(std::vector<std::string> args) {
  if (Variable() == nullptr) return args;
  const std::string flag =
      absl::StrCat("--rpc_threads=", RpcThreadsUnderTest());
  if (absl::EndsWith(args[0], "/ps_server")) {
    args.push_back(flag);
  } else if (args.size() > 2 && args[1] == "bench" && args[2] == "step") {
    // It runs `holdfast local`.
    args.push_back("--local_flags=--ps_flags=" + flag);
  } else if (args.size() > 1 && (args[1] == "local" || args[1] == "bench")) {
    const auto ps_flags =
        std::find_if(args.begin(), args.end(), [](const std::string& arg) {
          return absl::StartsWith(arg, "--ps_flags=");
        });
    if (ps_flags == args.end()) {
      args.push_back("--ps_flags=" + flag);
    } else {
      absl::StrAppend(&*ps_flags, " ", flag);
    }
  }
  return args;
}

}  // namespace holdfast
