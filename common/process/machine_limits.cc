// SPDX-License-Identifier: Apache-2.0
#include "common/process/machine_limits.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
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
  // The number in "KEY NUMBER ...", or in a file that contains only the number.
  // "max" means no limit.
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

// Calls `look` with the folder of the group `group`, such as "/a/b", and with
// the folders of its ancestors, in the hierarchy mounted at `mount`. In a
// container, the mount's root is the container's own group, while `group` may
// be its path outside.
void ForEachGroup(const std::string& mount, std::string group,
                  absl::FunctionRef<void(const std::string& folder)> look) {
  for (;;) {
    look(absl::StrCat(mount, group, "/"));
    const size_t end = group.rfind('/');
    if (end == std::string::npos) return;
    group.resize(end);
  }
}

// The CPU quota of version 2, in cores: "QUOTA PERIOD" in microseconds; "max
// PERIOD" means no limit.
std::optional<double> Quota(const std::string& path) {
  std::ifstream file(path);
  double quota, period;
  if (file >> quota >> period && quota > 0 && period > 0) return quota / period;
  return std::nullopt;
}

// The group of this process in the hierarchy of version 2 (`controller` empty)
// or of a controller of version 1, from lines such as "0::/a/b" and
// "4:cpuset,memory:/a/b". "" if it is the root, or outside of the visible
// hierarchy.
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
  ForEachGroup(root + "/sys/fs/cgroup", GroupOf(groups, ""),
               [&](const std::string& folder) {
                 take(FirstNumber(folder + "memory.max", /*key=*/""));
               });
  ForEachGroup(root + "/sys/fs/cgroup/memory", GroupOf(groups, "memory"),
               [&](const std::string& folder) {
                 take(FirstNumber(folder + "memory.limit_in_bytes", ""));
               });
  if (!least.has_value()) {
    return absl::NotFoundError(
        absl::StrCat("neither ", root, "/proc/meminfo nor ", root,
                     "/sys/fs/cgroup says how much memory there is"));
  }
  return static_cast<int64_t>(std::floor(kShare * static_cast<double>(*least)));
}

int AvailableCores(const std::string& root, int cores) {
  double least = std::max(cores, 1);
  const auto take = [&](std::optional<double> quota) {
    if (quota.has_value()) least = std::min(least, *quota);
  };
  const std::string groups = root + "/proc/self/cgroup";
  ForEachGroup(
      root + "/sys/fs/cgroup", GroupOf(groups, ""),
      [&](const std::string& folder) { take(Quota(folder + "cpu.max")); });
  // Mounted as "cpu", or as "cpu,cpuacct" with the link "cpu".
  ForEachGroup(
      root + "/sys/fs/cgroup/cpu", GroupOf(groups, "cpu"),
      [&](const std::string& folder) {
        const auto quota = FirstNumber(folder + "cpu.cfs_quota_us", "");
        const auto period = FirstNumber(folder + "cpu.cfs_period_us", "");
        // A quota of -1 means no limit; FirstNumber rejects it.
        if (quota.has_value() && period.has_value()) {
          take(static_cast<double>(*quota) / static_cast<double>(*period));
        }
      });
  return static_cast<int>(std::ceil(least));
}

int AvailableCores() {
  return AvailableCores(
      /*root=*/"", static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace holdfast
