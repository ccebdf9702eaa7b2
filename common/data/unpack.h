// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_DATA_UNPACK_H_
#define HOLDFAST_COMMON_DATA_UNPACK_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/data/byte_sink.h"
#include "common/data/data_cache.h"
#include "common/data/reading_progress.h"

namespace holdfast {

// Options for reading data files when they are opened.
struct ReadingOptions {
  // The number of threads that parse text, at least 1; the examples do not
  // depend on it.
  int threads = 1;
  // Keeps unpacked or parsed contents. If null, they are kept in memory.
  const DataCache* cache = nullptr;
  // Null for no reports.
  ReadingProgress* progress = nullptr;
};

struct Unpacked {
  absl::Span<const uint8_t> bytes;
  // Keeps the bytes alive.
  std::shared_ptr<const void> owner;
  // Whether the bytes are mapped; otherwise they are in memory.
  bool mapped = false;
};

// Returns the bytes that `write` makes from the file at `path`. They are in the
// cache if there is one, and otherwise in memory. `what` distinguishes cache
// entries made from the same file.
// Errors: those of `write` and DataCache.
absl::StatusOr<Unpacked> Unpack(
    const ReadingOptions& options, absl::string_view kind,
    const std::string& path, absl::string_view what,
    absl::FunctionRef<absl::Status(ByteSink* bytes)> write);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_UNPACK_H_
