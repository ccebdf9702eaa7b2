// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_PROTOCOL_SIPHASH_H_
#define HOLDFAST_PS_SERVER_PROTOCOL_SIPHASH_H_

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace holdfast {

// SipHash-2-4 (Aumasson and Bernstein 2012): a 64-bit message authentication
// code for short messages. Whoever lacks the key can neither compute the code
// of a message nor learn the key from codes.
//
// This is our own implementation, for messages of whole words: OpenSSL's takes
// three times as long for them, mostly to copy a context, and a push takes five
// codes. siphash_test compares the codes of both.
//
// Immutable, and so thread-safe.
class SipHash {
 public:
  static constexpr size_t kKeyBytes = 16;

  // `key` must have kKeyBytes.
  explicit SipHash(absl::string_view key);

  // The code of the words' bytes, each word little-endian.
  uint64_t Of(absl::Span<const uint64_t> words) const;

 private:
  uint64_t key_[2];
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_PROTOCOL_SIPHASH_H_
