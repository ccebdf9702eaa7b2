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

// "1.2 GB": for what people read.
std::string SizeText(int64_t bytes);

// Tells now and then how far a reading has come that takes long.
//
// Thread-safe.
class ReadingProgress {
 public:
  struct Options {
    // Must outlive this.
    const Clock* clock = nullptr;
    // Takes a line, from whatever thread reads.
    std::function<void(const std::string&)> tell;
    // Between lines, and before the first.
    absl::Duration every = absl::Seconds(5);
  };

  explicit ReadingProgress(Options options);

  // What is read from here on, as "\"x.csv\"", of so many bytes; 0: nobody
  // knows.
  void Begin(absl::string_view what, int64_t total_bytes);
  // So much of it has been read.
  void Add(int64_t bytes, int64_t rows = 0);

  // Tells something at once.
  void Tell(const std::string& line) const { options_.tell(line); }

 private:
  const Options options_;

  absl::Mutex mutex_;
  std::string what_ ABSL_GUARDED_BY(mutex_);
  int64_t total_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t rows_ ABSL_GUARDED_BY(mutex_) = 0;
  // Of the last line, or of Begin.
  absl::Time told_ ABSL_GUARDED_BY(mutex_);
  int64_t told_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_READING_PROGRESS_H_
