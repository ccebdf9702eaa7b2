// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_FLAG_SET_H_
#define HOLDFAST_CLI_FLAG_SET_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/marshalling.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace holdfast {

// A flag and the value that users type after it.
struct FlagName {
  // Without the dashes.
  std::string name;
  // Placeholder of the value in the help: "FILE", or "stop|restart" if these
  // are all possible values. Empty for a switch, which takes no value.
  std::string hint;
};

// A subcommand and its flags, for completion.
struct CommandWords {
  // "status", "checkpoint list".
  std::string command;
  std::vector<FlagName> flags;
};

// The flags of one subcommand. Abseil's flags are global to a program, so
// `holdfast status` would accept flags of `holdfast local`; only Abseil's
// parsing of values is used here.
//
// Thread-compatible.
class FlagSet {
 public:
  // Adds a flag --`name`=VALUE that is stored in `value`, which must outlive
  // this. `hint` is the placeholder of the value in the help ("FILE"); if
  // empty, the flag is a switch, a bool, and needs no value. `help` describes
  // the flag and its default.
  template <typename T>
  void Add(const std::string& name, const std::string& hint, T* value,
           const std::string& help) {
    flags_.push_back(
        {name, hint, help, [value](absl::string_view text, std::string* error) {
           return absl::ParseFlag(text, value, error);
         }});
  }

  // Parses `args`: --name=VALUE or --name VALUE. Errors: INVALID_ARGUMENT,
  // naming the flag, for an unknown flag, a missing or invalid value, a flag
  // that is given twice, or an argument that is not a flag.
  absl::Status Parse(absl::Span<const std::string> args) const;

  // The flags and their descriptions, one flag per paragraph.
  std::string Help() const;

  // All flags, in the order in which they were added.
  std::vector<FlagName> Names() const;

 private:
  struct Flag {
    std::string name;
    std::string hint;
    std::string help;
    std::function<bool(absl::string_view text, std::string* error)> set;
  };

  const Flag* Find(absl::string_view name) const;

  std::vector<Flag> flags_;
};

}  // namespace holdfast

#endif  // HOLDFAST_CLI_FLAG_SET_H_
