#include "common/flags.h"

#include <map>
#include <utility>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/reflection.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace holdfast {
namespace {

absl::CommandLineFlag* FindBool(absl::string_view name) {
  absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name);
  return flag != nullptr && flag->IsOfType<bool>() ? flag : nullptr;
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
      return absl::InvalidArgumentError(
          absl::StrCat("flag --", name, ": ", error));
    }
  }
  return line;
}

std::string FlagsHelp() {
  std::map<std::string, absl::CommandLineFlag*> by_name;
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    by_name.emplace(name, flag);
  }
  std::string help;
  for (const auto& [name, flag] : by_name) {
    absl::StrAppend(&help, "  --", name);
    const std::string initial = flag->DefaultValue();
    if (!initial.empty()) absl::StrAppend(&help, " (default ", initial, ")");
    absl::StrAppend(&help, "\n      ", flag->Help(), "\n");
  }
  return help;
}

}  // namespace holdfast
