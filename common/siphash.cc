#include "common/siphash.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include "glog/logging.h"

namespace holdfast {
namespace {

// OpenSSL refuses SipHash only when it is out of memory or installed without
// its default provider; neither leaves anything to go on with: hence CHECK.

EVP_MAC* Algorithm() {
  // Looked up once: that takes longer than a code.
  static EVP_MAC* const kAlgorithm = EVP_MAC_fetch(nullptr, "SIPHASH", nullptr);
  CHECK(kAlgorithm != nullptr);
  return kAlgorithm;
}

}  // namespace

void SipHash::Free::operator()(EVP_MAC_CTX* context) const {
  EVP_MAC_CTX_free(context);
}

SipHash::SipHash(absl::string_view key) : keyed_(EVP_MAC_CTX_new(Algorithm())) {
  CHECK_EQ(key.size(), kKeyBytes);
  CHECK(keyed_ != nullptr);
  size_t size = sizeof(uint64_t);
  const OSSL_PARAM params[] = {
      OSSL_PARAM_construct_size_t(OSSL_MAC_PARAM_SIZE, &size),
      OSSL_PARAM_construct_end()};
  CHECK_EQ(EVP_MAC_init(keyed_.get(),
                        reinterpret_cast<const unsigned char*>(key.data()),
                        key.size(), params),
           1);
}

uint64_t SipHash::Of(absl::string_view message) const {
  const std::unique_ptr<EVP_MAC_CTX, Free> context(
      EVP_MAC_CTX_dup(keyed_.get()));
  CHECK(context != nullptr);
  unsigned char code[sizeof(uint64_t)];
  size_t size = 0;
  CHECK_EQ(
      EVP_MAC_update(context.get(),
                     reinterpret_cast<const unsigned char*>(message.data()),
                     message.size()),
      1);
  CHECK_EQ(EVP_MAC_final(context.get(), code, &size, sizeof(code)), 1);
  CHECK_EQ(size, sizeof(code));
  uint64_t value = 0;
  for (size_t i = sizeof(code); i-- > 0;) value = value << 8 | code[i];
  return value;
}

}  // namespace holdfast
