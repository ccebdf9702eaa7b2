// SPDX-License-Identifier: Apache-2.0
#include "cli/certificate_authority.h"

#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"

namespace holdfast {
namespace {

// Bits of a serial number: too many to guess, and within the limit of 20 bytes.
constexpr int kSerialBits = 127;

using SharedCertificate = std::shared_ptr<X509>;
using SharedKey = std::shared_ptr<EVP_PKEY>;

absl::Status OpenSslError(absl::string_view what) {
  char text[256];
  ERR_error_string_n(ERR_peek_last_error(), text, sizeof(text));
  ERR_clear_error();
  return absl::InternalError(absl::StrCat(what, ": ", text));
}

std::shared_ptr<BIO> NewBio() { return {BIO_new(BIO_s_mem()), BIO_free}; }

std::string TextOf(BIO* bio) {
  char* text = nullptr;
  const long length = BIO_get_mem_data(bio, &text);
  return std::string(text, length);
}

absl::StatusOr<SharedKey> MakeKey() {
  SharedKey key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  if (key == nullptr) return OpenSslError("cannot create a key");
  return key;
}

// Begins a certificate, without extensions and signature.
absl::StatusOr<SharedCertificate> Begin(const CertificateRequest& request,
                                        EVP_PKEY* key) {
  SharedCertificate certificate(X509_new(), X509_free);
  const std::shared_ptr<BIGNUM> serial(BN_new(), BN_free);
  X509_NAME* const name = X509_get_subject_name(certificate.get());
  const bool done =
      X509_set_version(certificate.get(), X509_VERSION_3) == 1 &&
      BN_rand(serial.get(), kSerialBits, BN_RAND_TOP_ONE, BN_RAND_BOTTOM_ANY) ==
          1 &&
      BN_to_ASN1_INTEGER(serial.get(),
                         X509_get_serialNumber(certificate.get())) != nullptr &&
      ASN1_TIME_set(X509_getm_notBefore(certificate.get()),
                    absl::ToTimeT(request.not_before)) != nullptr &&
      ASN1_TIME_set(X509_getm_notAfter(certificate.get()),
                    absl::ToTimeT(request.not_after)) != nullptr &&
      X509_NAME_add_entry_by_txt(
          name, "CN", MBSTRING_UTF8,
          reinterpret_cast<const unsigned char*>(request.common_name.data()),
          static_cast<int>(request.common_name.size()), -1, 0) == 1 &&
      X509_set_pubkey(certificate.get(), key) == 1;
  if (!done) return OpenSslError("cannot create a certificate");
  return certificate;
}

absl::Status AddExtension(X509* certificate, X509* issuer, int id,
                          const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509V3_set_ctx_nodb(&context);
  const std::shared_ptr<X509_EXTENSION> extension(
      X509V3_EXT_conf_nid(nullptr, &context, id, value.c_str()),
      X509_EXTENSION_free);
  if (extension != nullptr &&
      X509_add_ext(certificate, extension.get(), -1) == 1) {
    return absl::OkStatus();
  }
  return OpenSslError(
      absl::StrCat("cannot put \"", value, "\" into a certificate"));
}

absl::StatusOr<KeyPair> Sign(X509* certificate, EVP_PKEY* key,
                             EVP_PKEY* issuer_key) {
  if (X509_sign(certificate, issuer_key, EVP_sha256()) == 0) {
    return OpenSslError("cannot sign a certificate");
  }
  const auto certificate_bio = NewBio();
  const auto key_bio = NewBio();
  if (PEM_write_bio_X509(certificate_bio.get(), certificate) != 1 ||
      PEM_write_bio_PrivateKey(key_bio.get(), key, nullptr, nullptr, 0, nullptr,
                               nullptr) != 1) {
    return OpenSslError("cannot write a certificate");
  }
  return KeyPair{TextOf(certificate_bio.get()), TextOf(key_bio.get())};
}

}  // namespace

CertificateRequest RequestFor(const Identity& identity, absl::Time not_before,
                              absl::Time not_after) {
  CertificateRequest request;
  const std::string host = absl::StrCat(
      identity.task.job, "-", identity.task.index, ".", identity.training);
  // A common name has at most 64 characters.
  request.common_name = host.substr(0, 64);
  request.uris = {identity.ToUri()};
  if (identity.task.job != kOperatorJob) request.dns_names = {host};
  request.not_before = not_before;
  request.not_after = not_after;
  return request;
}

absl::StatusOr<CertificateAuthority> CertificateAuthority::Make(
    const std::string& name, absl::Time not_before, absl::Time not_after) {
  CertificateRequest request;
  request.common_name = name;
  request.not_before = not_before;
  request.not_after = not_after;
  HOLDFAST_ASSIGN_OR_RETURN(const auto key, MakeKey());
  HOLDFAST_ASSIGN_OR_RETURN(const auto certificate, Begin(request, key.get()));
  X509* const own = certificate.get();
  X509_set_issuer_name(own, X509_get_subject_name(own));
  for (const auto& [id, value] :
       {std::pair<int, const char*>(NID_basic_constraints,
                                    "critical,CA:TRUE,pathlen:0"),
        {NID_key_usage, "critical,keyCertSign,cRLSign"},
        {NID_subject_key_identifier, "hash"}}) {
    HOLDFAST_RETURN_IF_ERROR(AddExtension(own, own, id, value));
  }
  HOLDFAST_ASSIGN_OR_RETURN(auto pair, Sign(own, key.get(), key.get()));
  return CertificateAuthority(std::move(pair), certificate, key);
}

absl::StatusOr<CertificateAuthority> CertificateAuthority::FromKeyPair(
    const KeyPair& pair) {
  const auto read = [](const std::string& text) {
    return std::shared_ptr<BIO>(
        BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), BIO_free);
  };
  const auto no_passphrase = [](char*, int, int, void*) { return -1; };
  SharedCertificate certificate(PEM_read_bio_X509(read(pair.certificate).get(),
                                                  nullptr, nullptr, nullptr),
                                X509_free);
  SharedKey key(PEM_read_bio_PrivateKey(read(pair.key).get(), nullptr,
                                        no_passphrase, nullptr),
                EVP_PKEY_free);
  const bool right = certificate != nullptr && key != nullptr &&
                     X509_check_ca(certificate.get()) != 0 &&
                     X509_check_private_key(certificate.get(), key.get()) == 1;
  ERR_clear_error();
  if (!right) {
    return absl::InvalidArgumentError(
        "not the certificate of an authority with its key");
  }
  return CertificateAuthority(pair, std::move(certificate), std::move(key));
}

absl::StatusOr<KeyPair> CertificateAuthority::Issue(
    const CertificateRequest& request) const {
  HOLDFAST_ASSIGN_OR_RETURN(const auto key, MakeKey());
  HOLDFAST_ASSIGN_OR_RETURN(const auto certificate, Begin(request, key.get()));
  X509_set_issuer_name(certificate.get(),
                       X509_get_subject_name(certificate_.get()));
  std::vector<std::string> names;
  for (const std::string& uri : request.uris) names.push_back("URI:" + uri);
  for (const std::string& name : request.dns_names) {
    names.push_back("DNS:" + name);
  }
  std::vector<std::pair<int, std::string>> extensions = {
      {NID_basic_constraints, "critical,CA:FALSE"},
      {NID_key_usage, "critical,digitalSignature"},
      {NID_ext_key_usage, "serverAuth,clientAuth"},
      {NID_subject_key_identifier, "hash"},
      {NID_authority_key_identifier, "keyid:always"}};
  if (!names.empty()) {
    extensions.push_back({NID_subject_alt_name, absl::StrJoin(names, ",")});
  }
  for (const auto& [id, value] : extensions) {
    HOLDFAST_RETURN_IF_ERROR(
        AddExtension(certificate.get(), certificate_.get(), id, value));
  }
  return Sign(certificate.get(), key.get(), key_.get());
}

}  // namespace holdfast
