// SPDX-License-Identifier: Apache-2.0
#include "common/process/process_figures.h"

#include <dirent.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace holdfast {
namespace {

// Fields of /proc/self/stat, counted as proc(5) does, from 1.
constexpr size_t kUserTicks = 14;
constexpr size_t kSystemTicks = 15;
constexpr size_t kStartTicks = 22;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

double NumberIn(const std::vector<absl::string_view>& fields, size_t index) {
  double number = 0;
  return index < fields.size() && absl::SimpleAtod(fields[index], &number)
             ? number
             : 0;
}

uint64_t CountFiles(const std::string& path) {
  DIR* const folder = opendir(path.c_str());
  if (folder == nullptr) return 0;
  uint64_t count = 0;
  while (const dirent* entry = readdir(folder))
    count += entry->d_name[0] != '.';
  closedir(folder);
  // Except the descriptor that reads the folder itself.
  return count > 0 ? count - 1 : 0;
}

// When the machine booted, in seconds since 1970.
double BootTime(const std::string& root) {
  for (const absl::string_view line :
       absl::StrSplit(ReadFile(absl::StrCat(root, "/proc/stat")), '\n')) {
    const std::vector<absl::string_view> fields = absl::StrSplit(line, ' ');
    if (fields.front() == "btime") return NumberIn(fields, 1);
  }
  return 0;
}

}  // namespace

ProcessFigures ReadProcessFigures(const std::string& root) {
  ProcessFigures figures;
  const std::string memory = ReadFile(absl::StrCat(root, "/proc/self/statm"));
  figures.resident_bytes = static_cast<uint64_t>(
      NumberIn(absl::StrSplit(memory, ' '), 1) * sysconf(_SC_PAGESIZE));
  figures.open_files = CountFiles(absl::StrCat(root, "/proc/self/fd"));

  const std::string stat = ReadFile(absl::StrCat(root, "/proc/self/stat"));
  // The second field is the program's name in parentheses, which may hold
  // spaces and parentheses; none follow it.
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return figures;
  constexpr size_t kFirst = 2;  // the number of the field before " S"
  const std::vector<absl::string_view> fields =
      absl::StrSplit(absl::string_view(stat).substr(name_end + 1), ' ');
  const double ticks = sysconf(_SC_CLK_TCK);
  figures.cpu_seconds = (NumberIn(fields, kUserTicks - kFirst) +
                         NumberIn(fields, kSystemTicks - kFirst)) /
                        ticks;
  if (const double boot = BootTime(root); boot > 0) {
    figures.start_time = boot + NumberIn(fields, kStartTicks - kFirst) / ticks;
  }
  return figures;
}

}  // namespace holdfast
