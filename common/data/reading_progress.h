// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_DATA_READING_PROGRESS_H_
#define HOLDFAST_COMMON_DATA_READING_PROGRESS_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"

namespace holdfast {

// A size for people: "1.2 GB".
std::string SizeText(int64_t bytes);

// Reports the progress of a long reading at intervals.
//
// Thread-safe.
class ReadingProgress {
 public:
  struct Options {
    // Must outlive the ReadingProgress.
    const Clock* clock = nullptr;
    // Called with each line, by whichever thread reads.
    std::function<void(const std::string&)> tell;
    // The time between two lines, and before the first one.
    absl::Duration every = absl::Seconds(5);
  };

  explicit ReadingProgress(Options options);

  // Begins the reading of `what`, such as "\"x.csv\"". `total_bytes` is 0 if it
  // is unknown.
  void Begin(absl::string_view what, int64_t total_bytes);
  // Records that `bytes` more bytes, and `rows` more rows, have been read.
  void Add(int64_t bytes, int64_t rows = 0);

  // Reports a line at once.
  void Tell(const std::string& line) const { options_.tell(line); }

 private:
  const Options options_;

  absl::Mutex mutex_;
  std::string what_ ABSL_GUARDED_BY(mutex_);
  int64_t total_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t rows_ ABSL_GUARDED_BY(mutex_) = 0;
  // The time of the last line, or of Begin.
  absl::Time told_ ABSL_GUARDED_BY(mutex_);
  int64_t told_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_READING_PROGRESS_H_
