// SPDX-License-Identifier: Apache-2.0
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

// All bytes of a file, for random access: a plain file is mapped
// (file_mapping.h), a gzip file is unpacked (unpack.h).
//
// Immutable, thus thread-safe.
struct FileBytes {
  absl::Span<const uint8_t> bytes;
  // Keeps the bytes alive.
  std::shared_ptr<const void> owner;
  // Whether the bytes were unpacked.
  bool is_gzip = false;
  // Whether the bytes are in a mapped file.
  bool mapped = false;
};

// `kind` names the format in errors.
// Errors: those of UnpackedFile, FileMapping and DataCache.
absl::StatusOr<FileBytes> ReadFileBytes(const std::string& path,
                                        absl::string_view kind,
                                        const ReadingOptions& options = {});

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_FILE_BYTES_H_
