// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_CERTIFICATE_AUTHORITY_H_
#define HOLDFAST_CLI_CERTIFICATE_AUTHORITY_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/rpc/identity.h"

struct evp_pkey_st;
struct x509_st;

namespace holdfast {

// A certificate with its private key, both PEM.
struct KeyPair {
  std::string certificate;
  std::string key;
};

// The contents of a certificate.
struct CertificateRequest {
  // For people.
  std::string common_name;
  // The subject's alternative names.
  std::vector<std::string> uris;
  std::vector<std::string> dns_names;
  absl::Time not_before;
  absl::Time not_after;
};

// Returns the request for the certificate of a task or an operator. A task's
// certificate also has the host name "JOB-INDEX.TRAINING", such as
// "ps-0.mnist", for clients that can only compare host names: gRPC in other
// languages, and readers of a status port.
CertificateRequest RequestFor(const Identity& identity, absl::Time not_before,
                              absl::Time not_after);

// Signs certificates, for development and tests. Keys are ECDSA on the curve
// P-256.
//
// Thread-compatible.
class CertificateAuthority {
 public:
  // Creates an authority with a new key. Errors: INTERNAL, with OpenSSL's
  // message.
  static absl::StatusOr<CertificateAuthority> Make(const std::string& name,
                                                   absl::Time not_before,
                                                   absl::Time not_after);
  // Makes an authority from its certificate and key. Errors: INVALID_ARGUMENT
  // if `pair` is not the certificate of an authority with its key.
  static absl::StatusOr<CertificateAuthority> FromKeyPair(const KeyPair& pair);

  const KeyPair& key_pair() const { return pair_; }

  // Errors: INTERNAL, with OpenSSL's message.
  absl::StatusOr<KeyPair> Issue(const CertificateRequest& request) const;

 private:
  CertificateAuthority(KeyPair pair, std::shared_ptr<x509_st> certificate,
                       std::shared_ptr<evp_pkey_st> key)
      : pair_(std::move(pair)),
        certificate_(std::move(certificate)),
        key_(std::move(key)) {}

  KeyPair pair_;
  std::shared_ptr<x509_st> certificate_;
  std::shared_ptr<evp_pkey_st> key_;
};

}  // namespace holdfast

#endif  // HOLDFAST_CLI_CERTIFICATE_AUTHORITY_H_
