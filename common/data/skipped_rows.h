// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_DATA_SKIPPED_ROWS_H_
#define HOLDFAST_COMMON_DATA_SKIPPED_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace holdfast {

// The number of rows that did not fit and were skipped, and what was wrong with
// the first few.
//
// Thread-compatible.
class SkippedRows {
 public:
  // The maximum number of rows for which the reason is kept.
  static constexpr size_t kTold = 5;

  SkippedRows() = default;
  SkippedRows(int64_t count, std::vector<std::string> because)
      : count_(count), because_(std::move(because)) {}

  void Add(const absl::Status& why) {
    ++count_;
    if (because_.size() < kTold) because_.emplace_back(why.message());
  }

  int64_t count() const { return count_; }
  const std::vector<std::string>& because() const { return because_; }

 private:
  int64_t count_ = 0;
  std::vector<std::string> because_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_SKIPPED_ROWS_H_
