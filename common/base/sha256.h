// SPDX-License-Identifier: Apache-2.0

// SHA-256 (FIPS 180-4), computed by OpenSSL.
//
// Thread-compatible. Data may be added in any number of pieces; the digest
// covers their concatenation.
#ifndef HOLDFAST_COMMON_BASE_SHA256_H_
#define HOLDFAST_COMMON_BASE_SHA256_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"

namespace holdfast {

class Sha256 {
 public:
  Sha256();
  ~Sha256();

  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  // Appends `size` bytes at `data`; `data` may be null when `size` is 0.
  void Update(const void* data, size_t size);
  void Update(absl::string_view data) { Update(data.data(), data.size()); }

  // The digest of all bytes so far, as 64 lower-case hexadecimal digits. More
  // bytes may follow.
  std::string HexDigest() const;

  // The digest of `data` alone.
  static std::string Hex(absl::string_view data);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_BASE_SHA256_H_
