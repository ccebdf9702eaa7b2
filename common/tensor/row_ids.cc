// SPDX-License-Identifier: Apache-2.0
#include "common/tensor/row_ids.h"

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace holdfast {
namespace {

constexpr size_t kMaxVarint = 10;

// Writes `value` at `to`, and returns the address after it.
char* WriteVarint(uint64_t value, char* to) {
  while (value >= 0x80) {
    *to++ = static_cast<char>(value | 0x80);
    value >>= 7;
  }
  *to++ = static_cast<char>(value);
  return to;
}

// Reads a varint at `*at`, and moves `*at` past it. Returns false if the varint
// is truncated, above 2^64 - 1, or longer than necessary.
bool ReadVarint(const uint8_t** at, const uint8_t* end, uint64_t* value) {
  uint64_t result = 0;
  for (size_t i = 0; i < kMaxVarint && *at < end; ++i) {
    const uint8_t byte = *(*at)++;
    // Only one bit of the last byte may be used.
    if (i == kMaxVarint - 1 && byte > 1) return false;
    result |= uint64_t{byte & 0x7fu} << (7 * i);
    if (byte < 0x80) {
      *value = result;
      return byte != 0 || i == 0;
    }
  }
  return false;
}

}  // namespace

std::string EncodeRowIds(absl::Span<const uint64_t> ids) {
  std::string bytes;
  // Enough for ids that are close together; for others the string grows.
  bytes.reserve(ids.size() * 2 + kMaxVarint);
  char buffer[4096];
  char* at = buffer;
  uint64_t next = 0;
  for (const uint64_t id : ids) {
    at = WriteVarint(id - next, at);
    next = id + 1;
    if (buffer + sizeof(buffer) - at < static_cast<ptrdiff_t>(kMaxVarint)) {
      bytes.append(buffer, at - buffer);
      at = buffer;
    }
  }
  bytes.append(buffer, at - buffer);
  return bytes;
}

absl::StatusOr<std::vector<uint64_t>> DecodeRowIds(absl::string_view bytes,
                                                   uint64_t count) {
  if (count > bytes.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        bytes.size(), " bytes are too few for the ids of ", count, " rows"));
  }
  const auto* at = reinterpret_cast<const uint8_t*>(bytes.data());
  const uint8_t* const end = at + bytes.size();
  std::vector<uint64_t> ids(count);
  uint64_t id = 0;
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t difference;
    if (!ReadVarint(&at, end, &difference)) {
      return absl::InvalidArgumentError(
          absl::StrCat("the bytes of id ", i, " of ", count,
                       " are not the shortest varint of 64 bits"));
    }
    if (i == 0) {
      id = difference;
    } else if (__builtin_add_overflow(id, difference, &id) ||
               __builtin_add_overflow(id, uint64_t{1}, &id)) {
      return absl::InvalidArgumentError(
          absl::StrCat("id ", i, " of ", count, " is beyond 64 bits"));
    }
    ids[i] = id;
  }
  if (at != end) {
    return absl::InvalidArgumentError(
        absl::StrCat(end - at, " bytes follow the ids of ", count, " rows"));
  }
  return ids;
}

}  // namespace holdfast
