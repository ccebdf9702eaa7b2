// SPDX-License-Identifier: Apache-2.0
#include "common/data/reading_progress.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace holdfast {

std::string SizeText(int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 999.5 && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  const int digits = unit == 0 || value >= 99.95 ? 0 : 1;
  return absl::StrFormat("%.*f %s", digits, value, kUnits[unit]);
}

ReadingProgress::ReadingProgress(Options options)
    : options_(std::move(options)), told_(options_.clock->Now()) {}

void ReadingProgress::Begin(absl::string_view what, int64_t total_bytes) {
  absl::MutexLock lock(&mutex_);
  what_ = std::string(what);
  total_bytes_ = total_bytes;
  bytes_ = 0;
  rows_ = 0;
  told_ = options_.clock->Now();
  told_bytes_ = 0;
}

void ReadingProgress::Add(int64_t bytes, int64_t rows) {
  std::string line;
  {
    absl::MutexLock lock(&mutex_);
    bytes_ += bytes;
    rows_ += rows;
    const absl::Duration since = options_.clock->Now() - told_;
    if (since < options_.every) return;
    const double rate = static_cast<double>(bytes_ - told_bytes_) /
                        absl::ToDoubleSeconds(since);
    line = absl::StrCat("reading ", what_, ": ", SizeText(bytes_));
    if (total_bytes_ > 0) {
      const double percent =
          100 * static_cast<double>(bytes_) / static_cast<double>(total_bytes_);
      absl::StrAppendFormat(&line, " of %s (%.0f %%)", SizeText(total_bytes_),
                            std::min(percent, 100.0));
    }
    if (rows_ > 0) absl::StrAppend(&line, ", ", rows_, " rows");
    absl::StrAppend(&line, ", ", SizeText(static_cast<int64_t>(rate)), "/s");
    told_ += since;
    told_bytes_ = bytes_;
  }
  options_.tell(line);
}

}  // namespace holdfast
