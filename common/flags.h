#ifndef HOLDFAST_COMMON_FLAGS_H_
#define HOLDFAST_COMMON_FLAGS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace holdfast {

// Reads a command line into the program's ABSL_FLAGs. Unlike
// absl::ParseCommandLine it returns errors, so that a program has one exit code
// for every wrong use, and it knows no flags but the program's own.

struct CommandLine {
  // --help was given.
  bool help = false;
  // What is not a flag, in order; all that follows "--" is not.
  std::vector<std::string> arguments;
};

// Forms: --name=value, --name value; --name and --noname for a bool. One dash
// is as good as two. `args` begins after the program's name. Flags before the
// wrong one are set. Errors: INVALID_ARGUMENT for a flag that is unknown, has
// no value, has one that does not parse, or stands twice with two values.
absl::StatusOr<CommandLine> ParseFlags(const std::vector<std::string>& args);

// All flags by name, each with its help and default, for --help.
std::string FlagsHelp();

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_FLAGS_H_
