// SPDX-License-Identifier: Apache-2.0
#include "cli/flag_set.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

namespace holdfast {

absl::Status FlagSet::Parse(absl::Span<const std::string> args) const {
  std::set<const Flag*> given;
  for (size_t i = 0; i < args.size(); ++i) {
    absl::string_view word = args[i];
    if (!absl::ConsumePrefix(&word, "--") || word.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", args[i], "\" is not a flag (--name=value)"));
    }
    const size_t equals = word.find('=');
    const absl::string_view name = word.substr(0, equals);
    const Flag* flag = Find(name);
    if (flag == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("unknown flag --", name, "; --help lists them"));
    }
    if (!given.insert(flag).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", name, " is given twice"));
    }
    const bool switched_on =
        flag->hint.empty() && equals == absl::string_view::npos;
    if (!switched_on && equals == absl::string_view::npos &&
        i + 1 == args.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--", name, " needs a value: --", name, "=", flag->hint));
    }
    const absl::string_view value = switched_on ? absl::string_view("true")
                                    : equals == absl::string_view::npos
                                        ? absl::string_view(args[++i])
                                        : word.substr(equals + 1);
    std::string error;
    if (!flag->set(value, &error)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--", name, "=", value, ": not a valid ",
          flag->hint.empty() ? "BOOL" : flag->hint, error.empty() ? "" : ": ",
          error, flag->hint == "DURATION" ? ", as 10s or 5m" : ""));
    }
  }
  return absl::OkStatus();
}

std::string FlagSet::Help() const {
  std::string help;
  for (const Flag& flag : flags_) {
    absl::StrAppend(&help, "  --", flag.name, flag.hint.empty() ? "" : "=",
                    flag.hint, "\n      ",
                    absl::StrReplaceAll(flag.help, {{"\n", "\n      "}}), "\n");
  }
  return help;
}

std::vector<FlagName> FlagSet::Names() const {
  std::vector<FlagName> names;
  for (const Flag& flag : flags_) names.push_back({flag.name, flag.hint});
  return names;
}

const FlagSet::Flag* FlagSet::Find(absl::string_view name) const {
  for (const Flag& flag : flags_) {
    if (flag.name == name) return &flag;
  }
  return nullptr;
}

}  // namespace holdfast
