// SPDX-License-Identifier: Apache-2.0
#include "cli/command.h"

#include <algorithm>
#include <iostream>

#include "common/process/exit_code.h"

namespace holdfast {

int RunCommand(const std::string& name, const char* usage, const FlagSet& flags,
               const std::vector<std::string>& args,
               absl::FunctionRef<absl::Status()> run) {
  if (std::count(args.begin(), args.end(), "--help") > 0) {
    std::cout << usage << "Flags:\n" << flags.Help();
    return kExitDone;
  }
  absl::Status status = flags.Parse(args);
  if (status.ok()) status = run();
  if (status.ok()) return kExitDone;
  if (absl::IsCancelled(status)) return kExitInterrupted;
  std::cerr << "holdfast " << name << ": " << status.message() << std::endl;
  return absl::IsInvalidArgument(status) ? kExitUsage : kExitFailed;
}

}  // namespace holdfast
