// SPDX-License-Identifier: Apache-2.0

// Definitions shared by the writer and the reader of data files
// (docs/formats/checkpoint.md). Private to the library.
#ifndef HOLDFAST_COMMON_CHECKPOINT_DATA_FILE_FORMAT_H_
#define HOLDFAST_COMMON_CHECKPOINT_DATA_FILE_FORMAT_H_

#include <cstdint>
#include <string>

#include "absl/base/config.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "common/checkpoint/data_file.h"
#include "common/checkpoint/encoding.h"
#include "common/checkpoint/stored_bucket.h"

namespace holdfast {

#if !defined(ABSL_IS_LITTLE_ENDIAN)
#error "Elements are written as they are in memory: it must be little-endian."
#endif

inline constexpr absl::string_view kDataFileMagic = "HFdata01";
// The size of the trailer: the index's offset, length and CRC32C, and the
// magic.
inline constexpr uint64_t kTrailerBytes = 8 + 4 + 4 + kMagicBytes;

inline constexpr uint64_t kElementBytes = sizeof(float);
static_assert(kCheckpointBlockBytes % kElementBytes == 0);

// The size of what precedes a row's floats: 8 bytes of id, and 8 bytes that
// hold both step and count.
inline constexpr uint64_t kRowHeaderBytes = 16;
inline constexpr int kCountBits = 24;

constexpr uint64_t RowBytes(uint32_t floats_per_row) {
  return kRowHeaderBytes + floats_per_row * kElementBytes;
}

inline constexpr uint64_t kRemovedIdBytes = 8;

constexpr uint64_t BucketBytes(const StoredBucket& contents,
                               uint32_t floats_per_row) {
  return contents.rows * RowBytes(floats_per_row) +
         contents.candidates * kRowHeaderBytes +
         (contents.removed_rows + contents.removed_candidates) *
             kRemovedIdBytes;
}

inline std::string DataFileName(uint32_t ps, uint32_t num_ps) {
  return absl::StrFormat("ps-%04d-of-%04d", ps, num_ps);
}

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_CHECKPOINT_DATA_FILE_FORMAT_H_
