// SPDX-License-Identifier: Apache-2.0

// The encoding of row ids (docs/protocol/tables.md, "Ids").
//
// Pure functions; safe from any thread.
#ifndef HOLDFAST_COMMON_TENSOR_ROW_IDS_H_
#define HOLDFAST_COMMON_TENSOR_ROW_IDS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace holdfast {

// Encodes ids in increasing order: the first id itself, and for each other id
// its difference from the previous one minus 1, as varints of 1 to 10 bytes (7
// bits per byte, lowest first; 0x80 is set in all but the last byte).
std::string EncodeRowIds(absl::Span<const uint64_t> ids);

// Returns the `count` ids that `bytes` encode; each list of ids has exactly one
// encoding.
// Errors: INVALID_ARGUMENT for bytes that EncodeRowIds would not write for
// `count` ids. No memory is allocated unless there are at least `count` bytes.
absl::StatusOr<std::vector<uint64_t>> DecodeRowIds(absl::string_view bytes,
                                                   uint64_t count);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_TENSOR_ROW_IDS_H_
