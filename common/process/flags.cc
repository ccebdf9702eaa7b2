// SPDX-License-Identifier: Apache-2.0
#include "common/process/flags.h"

#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/reflection.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "glog/logging.h"

namespace holdfast {
namespace {

absl::CommandLineFlag* FindBool(absl::string_view name) {
  absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name);
  return flag != nullptr && flag->IsOfType<bool>() ? flag : nullptr;
}

// The kind of value that the flag takes, for messages; empty if any text is
// valid.
absl::string_view KindOf(const absl::CommandLineFlag& flag) {
  if (flag.IsOfType<bool>()) return "true or false";
  if (flag.IsOfType<double>()) return "a number";
  if (flag.IsOfType<absl::Duration>()) {
    return "a duration with a unit, such as 10s or 5m";
  }
  if (flag.IsOfType<int>() || flag.IsOfType<int64_t>() ||
      flag.IsOfType<std::optional<int64_t>>()) {
    return "a whole number";
  }
  if (flag.IsOfType<std::optional<uint64_t>>()) {
    return "a whole number of at least 0";
  }
  return "";
}

constexpr size_t kLineWidth = 80;

// Appends the flag's name and default, and its help in the lines below.
void AppendFlag(const absl::CommandLineFlag& flag, std::string* help) {
  absl::StrAppend(help, "  --", flag.Name());
  const std::string initial = flag.DefaultValue();
  if (!initial.empty()) absl::StrAppend(help, " (default ", initial, ")");
  constexpr absl::string_view kIndent = "\n     ";
  size_t width = kLineWidth;
  for (const absl::string_view word :
       absl::StrSplit(flag.Help(), ' ', absl::SkipEmpty())) {
    if (width + 1 + word.size() > kLineWidth) {
      absl::StrAppend(help, kIndent);
      width = kIndent.size() - 1;
    }
    absl::StrAppend(help, " ", word);
    width += 1 + word.size();
  }
  absl::StrAppend(help, "\n");
}

}  // namespace

absl::StatusOr<CommandLine> ParseFlags(const std::vector<std::string>& args) {
  CommandLine line;
  std::map<std::string, std::string> given;
  for (size_t i = 0; i < args.size(); ++i) {
    absl::string_view arg = args[i];
    if (arg == "--") {
      line.arguments.insert(line.arguments.end(), args.begin() + i + 1,
                            args.end());
      break;
    }
    if (arg.size() < 2 || arg[0] != '-') {
      line.arguments.emplace_back(arg);
      continue;
    }
    arg.remove_prefix(absl::StartsWith(arg, "--") ? 2 : 1);
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(arg, absl::MaxSplits('=', 1));
    const bool has_value = absl::StrContains(arg, '=');
    std::string name(parts.first);
    std::string value(parts.second);
    if ((name == "help" || name == "h") && !has_value) {
      line.help = true;
      continue;
    }
    if (name == "version" && !has_value) {
      line.version = true;
      continue;
    }

    absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name);
    if (flag == nullptr && !has_value && absl::StartsWith(name, "no")) {
      flag = FindBool(name.substr(2));
      if (flag != nullptr) name = name.substr(2);
      value = "false";
    } else if (flag != nullptr && !has_value) {
      if (flag->IsOfType<bool>()) {
        value = "true";
      } else if (i + 1 == args.size()) {
        return absl::InvalidArgumentError(
            absl::StrCat("flag --", name, " needs a value"));
      } else {
        value = args[++i];
      }
    }
    if (flag == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("unknown flag --", name, "; --help lists them"));
    }
    const auto [before, is_first] = given.emplace(name, value);
    if (!is_first && before->second != value) {
      return absl::InvalidArgumentError(
          absl::StrCat("flag --", name, " is given twice: \"", before->second,
                       "\" and \"", value, "\""));
    }
    std::string error;
    if (!flag->ParseFrom(value, &error)) {
      const absl::string_view kind = KindOf(*flag);
      return absl::InvalidArgumentError(absl::StrCat(
          "flag --", name, ": ",
          kind.empty() ? error
                       : absl::StrCat("\"", value, "\" is not ", kind)));
    }
  }
  return line;
}

std::string FlagsHelp(absl::Span<const FlagGroup> groups) {
  std::map<std::string, const absl::CommandLineFlag*> left;
  for (const auto& [name, flag] : absl::GetAllFlags()) left.emplace(name, flag);

  std::string help;
  for (const FlagGroup& group : groups) {
    absl::StrAppend(&help, group.title, ":\n");
    for (const absl::string_view name : group.flags) {
      const auto found = left.find(std::string(name));
      CHECK(found != left.end())
          << name << " is not a flag, or is in two groups";
      AppendFlag(*found->second, &help);
      left.erase(found);
    }
    absl::StrAppend(&help, "\n");
  }
  if (!left.empty()) absl::StrAppend(&help, "Other:\n");
  for (const auto& [name, flag] : left) AppendFlag(*flag, &help);
  return help;
}

}  // namespace holdfast
