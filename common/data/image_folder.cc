// SPDX-License-Identifier: Apache-2.0
#include "common/data/image_folder.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace holdfast {
namespace {

namespace fs = std::filesystem;

// The names in `folder` that do not begin with a dot, sorted; if `folders`,
// only those of folders.
absl::StatusOr<std::vector<std::string>> NamesIn(const std::string& folder,
                                                 bool folders) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator next(folder, error);
  for (; !error && next != fs::directory_iterator(); next.increment(error)) {
    std::string name = next->path().filename().string();
    if (name[0] == '.') continue;
    std::error_code ignored;
    if (folders && !next->is_directory(ignored)) continue;
    names.push_back(std::move(name));
  }
  if (error) {
    return absl::ErrnoToStatus(
        error.value(),
        absl::StrCat("cannot list the images in \"", folder, "\""));
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

absl::StatusOr<std::vector<ImageClass>> ListImageClasses(
    const std::string& folder, const std::vector<std::string>& classes) {
  HOLDFAST_ASSIGN_OR_RETURN(auto found, NamesIn(folder, true));
  const auto invalid = [&](absl::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot read the images in \"", folder, "\": ", what));
  };
  if (found.empty()) {
    return invalid(
        "there are no folders in it; each class needs a folder of its "
        "images");
  }
  for (const std::string& name : classes) {
    if (std::binary_search(found.begin(), found.end(), name)) continue;
    return invalid(absl::StrCat("there is no folder of the class \"", name,
                                "\"; create one, even if it has no images"));
  }
  for (const std::string& name : found) {
    if (classes.empty() ||
        std::find(classes.begin(), classes.end(), name) != classes.end()) {
      continue;
    }
    return invalid(absl::StrCat("the folder \"", name,
                                "\" is none of the `classes`; name it there, "
                                "or move it elsewhere"));
  }
  std::vector<ImageClass> listed;
  for (const std::string& name : classes.empty() ? found : classes) {
    HOLDFAST_ASSIGN_OR_RETURN(auto files,
                              NamesIn(absl::StrCat(folder, "/", name), false));
    listed.push_back({name, std::move(files)});
  }
  return listed;
}

absl::StatusOr<std::vector<ImageClass>> ListUnlabeledImages(
    const std::string& folder) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto folders, NamesIn(folder, true));
  if (!folders.empty()) return ListImageClasses(folder, {});
  HOLDFAST_ASSIGN_OR_RETURN(auto files, NamesIn(folder, false));
  return std::vector<ImageClass>{{"", std::move(files)}};
}

}  // namespace holdfast
