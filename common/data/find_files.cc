// SPDX-License-Identifier: Apache-2.0
#include "common/data/find_files.h"

#include <glob.h>

#include <algorithm>
#include <set>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace holdfast {

absl::StatusOr<std::vector<std::string>> FindFiles(
    const std::vector<std::string>& patterns) {
  std::vector<std::string> paths;
  std::set<std::string> seen;
  for (const std::string& pattern : patterns) {
    std::vector<std::string> found = {pattern};
    if (pattern.find_first_of("*?[") != std::string::npos) {
      glob_t result = {};
      const int code = glob(pattern.c_str(), GLOB_NOSORT, nullptr, &result);
      const absl::Cleanup free_it = [&result] { globfree(&result); };
      if (code != 0 && code != GLOB_NOMATCH) {
        return absl::UnavailableError(
            absl::StrCat("cannot look for the files \"", pattern, "\""));
      }
      found.assign(result.gl_pathv, result.gl_pathv + result.gl_pathc);
      if (found.empty()) {
        return absl::NotFoundError(
            absl::StrCat("no file matches \"", pattern, "\""));
      }
      std::sort(found.begin(), found.end());
    }
    for (std::string& path : found) {
      if (!seen.insert(path).second) {
        return absl::InvalidArgumentError(absl::StrCat(
            "the file \"", path, "\" is named twice, or matched twice"));
      }
      paths.push_back(std::move(path));
    }
  }
  return paths;
}

}  // namespace holdfast
