#ifndef HOLDFAST_PS_SERVER_PROTOCOL_SIPHASH_H_
#define HOLDFAST_PS_SERVER_PROTOCOL_SIPHASH_H_

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace holdfast {

// SipHash-2-4 (Aumasson and Bernstein 2012): a message authentication code of
// 64 bits for short messages. Whoever does not know the key can neither make
// the code of a message nor learn the key from codes.
//
// Our own, for messages of whole words: OpenSSL's takes three times as long for
// them, most of it for copying a context, and a push takes five codes.
// siphash_test compares the codes of the two.
//
// Immutable, and so thread-safe.
class SipHash {
 public:
  static constexpr size_t kKeyBytes = 16;

  // `key` must have kKeyBytes.
  explicit SipHash(absl::string_view key);

  // Of the words' bytes, each little-endian.
  uint64_t Of(absl::Span<const uint64_t> words) const;

 private:
  uint64_t key_[2];
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_PROTOCOL_SIPHASH_H_
