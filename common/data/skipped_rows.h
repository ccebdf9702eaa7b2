#ifndef HOLDFAST_COMMON_DATA_SKIPPED_ROWS_H_
#define HOLDFAST_COMMON_DATA_SKIPPED_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace holdfast {

// Rows that did not fit and were left out, and what was wrong with the first
// few.
//
// Thread-compatible.
class SkippedRows {
 public:
  void Add(const absl::Status& why) {
    ++count_;
    if (because_.size() < kTold) because_.emplace_back(why.message());
  }

  int64_t count() const { return count_; }
  const std::vector<std::string>& because() const { return because_; }

 private:
  static constexpr size_t kTold = 5;

  int64_t count_ = 0;
  std::vector<std::string> because_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_SKIPPED_ROWS_H_
