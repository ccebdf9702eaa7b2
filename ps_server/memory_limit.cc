#include "ps_server/memory_limit.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace holdfast {
namespace {

constexpr double kShare = 0.8;

std::optional<int64_t> FirstNumber(const std::string& path,
                                   const std::string& key) {
  std::ifstream file(path);
  std::string word;
  // Of "KEY NUMBER ...", or of a file that holds nothing but the number. "max"
  // is no limit.
  while (file >> word) {
    if (!key.empty()) {
      if (word != key) continue;
      if (!(file >> word)) break;
    }
    int64_t number;
    if (absl::SimpleAtoi(word, &number) && number > 0) return number;
    break;
  }
  return std::nullopt;
}

// The least of `file` in the group `group`, "/a/b", and in those that it is in,
// with the hierarchy mounted at `mount`. Of a container the mount's root is its
// own group, while `group` may be its path outside.
std::optional<int64_t> GroupLimit(const std::string& mount, std::string group,
                                  const std::string& file) {
  std::optional<int64_t> least;
  for (;;) {
    const auto limit =
        FirstNumber(absl::StrCat(mount, group, "/", file), /*key=*/"");
    if (limit.has_value()) least = std::min(least.value_or(*limit), *limit);
    const size_t end = group.rfind('/');
    if (end == std::string::npos) return least;
    group.resize(end);
  }
}

// The group of this process in the hierarchy of version 2 (`controller` empty)
// or of a controller of version 1, from lines as "0::/a/b" and
// "4:cpuset,memory:/a/b". "" where it is the root, or told as from elsewhere.
std::string GroupOf(const std::string& path, absl::string_view controller) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    const std::vector<absl::string_view> fields =
        absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() < 3) continue;
    for (const absl::string_view name : absl::StrSplit(fields[1], ',')) {
      if (name != controller) continue;
      if (absl::StrContains(fields[2], "/..")) return "";
      return std::string(absl::StripSuffix(fields[2], "/"));
    }
  }
  return "";
}

}  // namespace

absl::StatusOr<int64_t> DefaultMemoryLimit(const std::string& root) {
  std::optional<int64_t> least;
  const auto take = [&](std::optional<int64_t> bytes) {
    if (bytes.has_value()) least = std::min(least.value_or(*bytes), *bytes);
  };
  if (const auto kib = FirstNumber(root + "/proc/meminfo", "MemTotal:")) {
    take(*kib * 1024);
  }
  const std::string groups = root + "/proc/self/cgroup";
  take(GroupLimit(root + "/sys/fs/cgroup", GroupOf(groups, ""), "memory.max"));
  take(GroupLimit(root + "/sys/fs/cgroup/memory", GroupOf(groups, "memory"),
                  "memory.limit_in_bytes"));
  if (!least.has_value()) {
    return absl::NotFoundError(
        absl::StrCat("neither ", root, "/proc/meminfo nor ", root,
                     "/sys/fs/cgroup tells how much memory there is"));
  }
  return static_cast<int64_t>(std::floor(kShare * static_cast<double>(*least)));
}

}  // namespace holdfast
