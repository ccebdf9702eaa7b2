// Ids of rows as bytes (docs/protocol/tables.md, "Ids").
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

// The bytes of ids that rise: of the first the id itself, of each other the
// difference to the one before less 1, as varints of 1 to 10 bytes (7 bits a
// byte, the lowest first; 0x80 is set in all but the last).
std::string EncodeRowIds(absl::Span<const uint64_t> ids);

// The `count` ids that `bytes` are the encoding of, and the only one.
// Errors: INVALID_ARGUMENT for bytes that EncodeRowIds does not write for so
// many ids. No memory is taken before there are bytes enough for them.
absl::StatusOr<std::vector<uint64_t>> DecodeRowIds(absl::string_view bytes,
                                                   uint64_t count);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_TENSOR_ROW_IDS_H_
