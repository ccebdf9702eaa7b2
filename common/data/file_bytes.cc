// SPDX-License-Identifier: Apache-2.0
#include "common/data/file_bytes.h"

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/data/file_mapping.h"
#include "common/data/unpacked_file.h"

namespace holdfast {
namespace {

// The number of bytes unpacked at a time.
constexpr size_t kPiece = 1 << 20;

}  // namespace

absl::StatusOr<FileBytes> ReadFileBytes(const std::string& path,
                                        absl::string_view kind,
                                        const ReadingOptions& options) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto file, UnpackedFile::Open(path, kind));
  FileBytes read;
  read.is_gzip = file->is_gzip();
  if (!read.is_gzip) {
    HOLDFAST_ASSIGN_OR_RETURN(const auto mapping, FileMapping::Open(path));
    read.bytes = mapping->bytes();
    read.owner = mapping;
    read.mapped = true;
    return read;
  }
  if (options.progress != nullptr) {
    options.progress->Begin(absl::StrCat("\"", path, "\""), file->file_size());
  }
  const auto unpacked =
      Unpack(options, "gzip", path, "", [&](ByteSink* bytes) -> absl::Status {
        std::vector<uint8_t> piece(kPiece);
        while (true) {
          const int64_t file_offset = file->file_offset();
          HOLDFAST_ASSIGN_OR_RETURN(const auto n,
                                    file->Read(piece.data(), piece.size()));
          absl::Status status = bytes->Append({piece.data(), n});
          if (!status.ok() || n < piece.size()) return status;
          if (options.progress != nullptr) {
            options.progress->Add(file->file_offset() - file_offset);
          }
        }
      });
  if (!unpacked.ok()) return unpacked.status();
  read.bytes = unpacked->bytes;
  read.owner = unpacked->owner;
  read.mapped = unpacked->mapped;
  return read;
}

}  // namespace holdfast
