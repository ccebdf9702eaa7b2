// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_DATA_FILE_MAPPING_H_
#define HOLDFAST_COMMON_DATA_FILE_MAPPING_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace holdfast {

// A mapping of a file: memory that the kernel fills when it is read and may
// reclaim. If the file is truncated meanwhile, reading kills this process
// (SIGBUS).
//
// Immutable, thus thread-safe.
class FileMapping {
 public:
  // Errors: those of the system; INVALID_ARGUMENT if `path` is not a regular
  // file.
  static absl::StatusOr<std::shared_ptr<const FileMapping>> Open(
      const std::string& path);

  ~FileMapping();

  FileMapping(const FileMapping&) = delete;
  FileMapping& operator=(const FileMapping&) = delete;

  absl::Span<const uint8_t> bytes() const { return {data_, size_}; }

 private:
  FileMapping() = default;

  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_FILE_MAPPING_H_
