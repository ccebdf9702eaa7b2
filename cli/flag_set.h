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

// A flag as it is typed.
struct FlagName {
  // Without the dashes.
  std::string name;
  // Stands for the value in the help: "FILE", or "stop|restart" where these
  // are all. Empty: a switch, which needs none.
  std::string hint;
};

// A subcommand and what may follow it, for completion.
struct CommandWords {
  // "status", "checkpoint list".
  std::string command;
  std::vector<FlagName> flags;
};

// The flags of one subcommand. Abseil's flags are those of the whole program,
// so that `holdfast status` would take what only `holdfast local` knows; its
// parsing of values is what is used here.
//
// Thread-compatible.
class FlagSet {
 public:
  // Takes --`name`=VALUE into `value`, which must outlive this. `hint` stands
  // for the value in the help ("FILE"); without one the flag is a switch, a
  // bool, and needs no value. `help` says what it is for and its default.
  template <typename T>
  void Add(const std::string& name, const std::string& hint, T* value,
           const std::string& help) {
    flags_.push_back(
        {name, hint, help, [value](absl::string_view text, std::string* error) {
           return absl::ParseFlag(text, value, error);
         }});
  }

  // Reads `args`: --name=VALUE or --name VALUE.
  // Errors: INVALID_ARGUMENT, naming the flag, for an unknown one, a value that
  // is missing or cannot be, one that is given twice, or a word that is not a
  // flag.
  absl::Status Parse(absl::Span<const std::string> args) const;

  // The flags and what they are for, one below the other.
  std::string Help() const;

  // All of them, in the order in which they were added.
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
