// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_PROCESS_FLAGS_H_
#define HOLDFAST_COMMON_PROCESS_FLAGS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace holdfast {

// Reads a command line into the program's ABSL_FLAGs. Unlike
// absl::ParseCommandLine it returns errors, so that a program has one exit code
// for all usage errors, and it has no flags other than the program's own.

struct CommandLine {
  // --help was given.
  bool help = false;
  // --version was given.
  bool version = false;
  // The arguments that are not flags, in order, including everything after
  // "--".
  std::vector<std::string> arguments;
};

// Sets the flags that `args` name, in the forms --name=value and --name value,
// and --name and --noname for a bool. One dash is equivalent to two. `args`
// begins after the program's name. After an error, the flags before the wrong
// one are already set.
// Errors: INVALID_ARGUMENT for a flag that is unknown, has no value, has a
// value that does not parse, or is given twice with different values.
absl::StatusOr<CommandLine> ParseFlags(const std::vector<std::string>& args);

// The flags under one heading of --help, in the order in which they are shown.
struct FlagGroup {
  absl::string_view title;
  std::vector<absl::string_view> flags;
};

// All flags of the program, each with its default and help: those of `groups`
// under their titles, and then all others under "Other".
std::string FlagsHelp(absl::Span<const FlagGroup> groups);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_PROCESS_FLAGS_H_
