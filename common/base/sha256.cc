// SPDX-License-Identifier: Apache-2.0
#include "common/base/sha256.h"

#include <openssl/evp.h>

#include "absl/strings/escaping.h"
#include "glog/logging.h"

namespace holdfast {
namespace {

// SHA-256 fails only if OpenSSL is out of memory or installed without its
// default provider; the process cannot continue in either case, hence CHECK.

struct FreeContext {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};
using Context = std::unique_ptr<EVP_MD_CTX, FreeContext>;

Context MakeContext() {
  Context context(EVP_MD_CTX_new());
  CHECK(context != nullptr);
  return context;
}

}  // namespace

struct Sha256::State {
  Context context = MakeContext();
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  CHECK_EQ(EVP_DigestInit_ex(state_->context.get(), EVP_sha256(), nullptr), 1);
}

Sha256::~Sha256() = default;

void Sha256::Update(const void* data, size_t size) {
  if (size == 0) return;
  CHECK_EQ(EVP_DigestUpdate(state_->context.get(), data, size), 1);
}

std::string Sha256::HexDigest() const {
  // A context cannot be used after it is finalized, so a copy is finalized.
  Context copy = MakeContext();
  CHECK_EQ(EVP_MD_CTX_copy_ex(copy.get(), state_->context.get()), 1);
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  CHECK_EQ(EVP_DigestFinal_ex(copy.get(), digest, &size), 1);
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest), size));
}

std::string Sha256::Hex(absl::string_view data) {
  Sha256 sha;
  sha.Update(data);
  return sha.HexDigest();
}

}  // namespace holdfast
