#ifndef HOLDFAST_COMMON_DATA_FILE_BYTES_H_
#define HOLDFAST_COMMON_DATA_FILE_BYTES_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/data/unpack.h"

namespace holdfast {

// All bytes of a file, of which any may be read at any time: those of a plain
// file are mapped (file_mapping.h), those of a gzip file are unpacked
// (unpack.h).
//
// Immutable, thus thread-safe.
struct FileBytes {
  absl::Span<const uint8_t> bytes;
  // Keeps the bytes.
  std::shared_ptr<const void> owner;
  // Whether they are unpacked ones.
  bool is_gzip = false;
  // Whether they are in a mapped file.
  bool mapped = false;
};

// `kind` names the format in errors, which are those of UnpackedFile,
// FileMapping and DataCache.
absl::StatusOr<FileBytes> ReadFileBytes(const std::string& path,
                                        absl::string_view kind,
                                        const ReadingOptions& options = {});

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_FILE_BYTES_H_
