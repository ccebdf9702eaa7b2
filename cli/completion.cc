// SPDX-License-Identifier: Apache-2.0
#include "cli/completion.h"

#include <algorithm>
#include <iostream>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/process/exit_code.h"

namespace holdfast {
namespace {

constexpr char kUsage[] =
    R"(holdfast completion bash: prints a script that completes commands and flags

For this shell, for yourself, and for all users of a machine:

  source <(holdfast completion bash)
  holdfast completion bash > ~/.local/share/bash-completion/completions/holdfast
  holdfast completion bash > /usr/share/bash-completion/completions/holdfast

The last two require the package bash-completion, and take effect in new shells.

Exits 0 when the script was printed, 2 for another shell.
)";

// The script, with placeholders such as @COMMANDS@ for the parts that depend on
// the commands. bash splits "--flag=value" at the '='.
constexpr char kScript[] =
    R"(# bash completion for holdfast, made by `holdfast completion bash`.
_holdfast() {
  local cur=${COMP_WORDS[COMP_CWORD]} first=${COMP_WORDS[1]-} flag='' i
  local command=$first words='' values=''
  COMPREPLY=()

# The user's own command.
  for ((i = 2; i < COMP_CWORD; ++i)); do
    if [[ ${COMP_WORDS[i]} == -- ]]; then
      compopt -o filenames
      mapfile -t COMPREPLY < <(compgen -f -- "$cur")
      return
    fi
  done

  if ((COMP_CWORD == 1)); then
    mapfile -t COMPREPLY < <(compgen -W '@COMMANDS@ help --help --version' -- "$cur")
    return
  fi
  case $first in
@VERBS@
  esac

  # The flag whose value is being typed.
  if [[ $cur == '=' ]]; then
    flag=${COMP_WORDS[COMP_CWORD - 1]}
    cur=''
  elif [[ ${COMP_WORDS[COMP_CWORD - 1]} == '=' ]]; then
    flag=${COMP_WORDS[COMP_CWORD - 2]}
  elif [[ ${COMP_WORDS[COMP_CWORD - 1]} == --* && $cur != -* ]]; then
    flag=${COMP_WORDS[COMP_CWORD - 1]}
  fi
  case "$command $flag" in
@VALUES@
  esac
  case $values in
    file | folder)
      compopt -o filenames
      if [[ $values == folder ]]; then
        mapfile -t COMPREPLY < <(compgen -d -- "$cur")
      else
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
      fi
      return
      ;;
    ?*)
      mapfile -t COMPREPLY < <(compgen -W "$values" -- "$cur")
      return
      ;;
  esac

  case $command in
@FLAGS@
  esac
  mapfile -t COMPREPLY < <(compgen -W "$words --help" -- "$cur")
  if ((${#COMPREPLY[@]} == 0)); then
# An argument that is not a flag, such as a checkpoint directory.
    compopt -o filenames
    mapfile -t COMPREPLY < <(compgen -f -- "$cur")
  elif [[ ${COMPREPLY[0]} == *= ]]; then
    compopt -o nospace
  fi
}
complete -F _holdfast holdfast
)";

// The possible values: "file", "folder", or words; empty for anything.
std::string ValuesOf(const FlagName& flag) {
  const std::string& hint = flag.hint;
  if (absl::StrContains(hint, "FOLDER")) return "folder";
  if (absl::StrContains(hint, "FILE")) return "file";
  if (absl::StrContains(hint, "|")) {
    return absl::StrReplaceAll(hint, {{"|", " "}});
  }
  return "";
}

}  // namespace

std::string BashCompletion(absl::Span<const CommandWords> commands) {
  std::vector<std::string> names;
  std::map<std::string, std::vector<std::string>> verbs;
  std::string values;
  std::string flags;
  for (const CommandWords& command : commands) {
    const std::vector<std::string> words = absl::StrSplit(command.command, ' ');
    if (std::find(names.begin(), names.end(), words[0]) == names.end()) {
      names.push_back(words[0]);
    }
    if (words.size() > 1) verbs[words[0]].push_back(words[1]);
    std::string typed;
    for (const FlagName& flag : command.flags) {
      absl::StrAppend(&typed, typed.empty() ? "" : " ", "--", flag.name,
                      flag.hint.empty() ? "" : "=");
      if (const std::string known = ValuesOf(flag); !known.empty()) {
        absl::StrAppend(&values, "    '", command.command, " --", flag.name,
                        "') values='", known, "' ;;\n");
      }
    }
    absl::StrAppend(&flags, "    '", command.command, "') words='", typed,
                    "' ;;\n");
  }
  std::string verb_cases;
  for (const auto& [name, of_command] : verbs) {
    absl::StrAppend(&verb_cases, "    ", name,
                    ")\n"
                    "      if ((COMP_CWORD == 2)); then\n"
                    "        mapfile -t COMPREPLY < <(compgen -W '",
                    absl::StrJoin(of_command, " "),
                    " --help' -- \"$cur\")\n"
                    "        return\n"
                    "      fi\n"
                    "      command=\"$first ${COMP_WORDS[2]}\"\n"
                    "      ;;\n");
  }
  return absl::StrReplaceAll(kScript,
                             {{"@COMMANDS@", absl::StrJoin(names, " ")},
                              {"@VERBS@\n", verb_cases},
                              {"@VALUES@\n", values},
                              {"@FLAGS@\n", flags}});
}

int CompletionCommand(const std::vector<std::string>& args,
                      absl::Span<const CommandWords> commands) {
  if (std::count(args.begin(), args.end(), "--help") > 0) {
    std::cout << kUsage;
    return kExitDone;
  }
  if (args.size() != 1 || args[0] != "bash") {
    std::cerr << "holdfast completion: "
              << (args.empty() ? "a shell is required"
                               : absl::StrCat("\"", absl::StrJoin(args, " "),
                                              "\" is not a supported shell"))
              << ": holdfast completion bash" << std::endl;
    return kExitUsage;
  }
  std::vector<CommandWords> all(commands.begin(), commands.end());
  all.push_back({"completion bash", {}});
  std::cout << BashCompletion(all) << std::flush;
  return kExitDone;
}

}  // namespace holdfast
