#include "cli/find_program.h"

#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace holdfast {
namespace {

namespace fs = std::filesystem;

bool IsProgram(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) && access(path.c_str(), X_OK) == 0;
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
  for (const fs::path& place : places) {
    if (IsProgram(place)) return place.string();
  }
  return absl::NotFoundError(absl::StrCat(
      places.front().string(),
      places.size() > 1 ? " or " + places.back().string() : "",
      ": not there, or not a program; --", flag, " says where it is"));
}

std::string ThisProgram() {
  std::error_code ignored;
  return fs::read_symlink("/proc/self/exe", ignored).string();
}

}  // namespace holdfast
