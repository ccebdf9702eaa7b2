#ifndef HOLDFAST_COMMON_SIPHASH_H_
#define HOLDFAST_COMMON_SIPHASH_H_

#include <openssl/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/strings/string_view.h"

namespace holdfast {

// SipHash-2-4 (Aumasson and Bernstein 2012), by OpenSSL: a message
// authentication code of 64 bits for short messages. Whoever does not know the
// key can neither make the code of a message nor learn the key from codes.
//
// One code costs about 0.15 us, HMAC-SHA256 about 2.
//
// Immutable, and so thread-safe.
class SipHash {
 public:
  static constexpr size_t kKeyBytes = 16;

  // `key` must have kKeyBytes.
  explicit SipHash(absl::string_view key);

  uint64_t Of(absl::string_view message) const;

 private:
  struct Free {
    void operator()(EVP_MAC_CTX* context) const;
  };

  // With the key, before any message.
  std::unique_ptr<EVP_MAC_CTX, Free> keyed_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_SIPHASH_H_
