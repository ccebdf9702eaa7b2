// SPDX-License-Identifier: Apache-2.0
#include "cli/find_program.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace holdfast {
namespace {

namespace fs = std::filesystem;

// Why `path` cannot be run; empty if it can.
std::string WhyNoProgram(const fs::path& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return std::strerror(errno);
  if (!S_ISREG(info.st_mode)) return "not a file";
  if (access(path.c_str(), X_OK) != 0) return "not executable";
  return "";
}

}  // namespace

absl::StatusOr<std::string> FindProgram(absl::string_view flag,
                                        const std::string& given,
                                        const std::string& build_folder,
                                        const std::string& name) {
  std::vector<fs::path> places = {given};
  if (given.empty()) {
    const fs::path folder = fs::path(ThisProgram()).parent_path();
    places = {folder / name, folder.parent_path() / build_folder / name};
  }
  std::vector<std::string> reasons;
  for (const fs::path& place : places) {
    const std::string reason = WhyNoProgram(place);
    if (reason.empty()) return place.string();
    reasons.push_back(absl::StrCat(place.string(), ": ", reason));
  }
  return absl::NotFoundError(
      absl::StrCat("cannot run ", absl::StrJoin(reasons, ", nor "), "; --",
                   flag, " sets the program's path"));
}

absl::StatusOr<std::string> FindCommand(const std::string& command) {
  if (absl::StrContains(command, '/')) {
    const std::string reason = WhyNoProgram(command);
    if (reason.empty()) return command;
    return absl::NotFoundError(
        absl::StrCat("cannot run ", command, ": ", reason));
  }
  const char* const path = std::getenv("PATH");
  const std::string folders = path == nullptr ? "" : path;
  for (const absl::string_view folder :
       absl::StrSplit(folders, ':', absl::SkipEmpty())) {
    const fs::path file = fs::path(std::string(folder)) / command;
    if (!command.empty() && WhyNoProgram(file).empty()) return file.string();
  }
  return absl::NotFoundError(absl::StrCat(
      "cannot run \"", command, "\": no such program in $PATH (", folders,
      "); for a file in the current folder, write ./", command));
}

std::string ThisProgram() {
  std::error_code ignored;
  return fs::read_symlink("/proc/self/exe", ignored).string();
}

}  // namespace holdfast
