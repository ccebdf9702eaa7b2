// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_RPC_CREDENTIALS_H_
#define HOLDFAST_COMMON_RPC_CREDENTIALS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/rpc/identity.h"

struct x509_st;  // OpenSSL's X509

namespace grpc {
class ChannelCredentials;
class ServerCredentials;
}  // namespace grpc

namespace holdfast {

// The URIs among a certificate's subject alternative names that are identities,
// valid or not (IsIdentityUri).
std::vector<std::string> IdentityUrisOf(const x509_st& certificate);

// What a process presents to its peers and requires from them: either
// certificates of one authority (docs/operating/security.md), or nothing.
//
// Copies are cheap and share their state. Thread-safe.
class Credentials {
 public:
  // No credentials: connections are not encrypted, and peers are not
  // authenticated.
  Credentials() = default;

  // Credentials for mutual TLS from the PEM files in `folder`, which have the
  // names that Kubernetes gives them:
  //   ca.crt   the authorities whose certificates are accepted, one or more
  //   tls.crt  this process's certificate, then any intermediate ones
  //   tls.key  its private key, without a passphrase
  // While any copy of the object lives, the files are checked again each
  // second. If they have changed and are valid, later connections use the new
  // files; if the new files are not valid, the log says what is wrong.
  //
  // Errors, with the file's name: NOT_FOUND when it cannot be read;
  // INVALID_ARGUMENT when it does not parse, when the key does not belong to
  // the certificate, or when the certificate was not signed by the authority,
  // is not yet or no longer valid, or has no identity. RESOURCE_EXHAUSTED when
  // no file descriptor is left.
  static absl::StatusOr<Credentials> FromFolder(const std::string& folder);

  bool secure() const { return impl_ != nullptr; }
  // The identity in this process's certificate. Requires secure().
  const Identity& identity() const;

  // Credentials for a server that accepts every peer with a certificate of the
  // authority. The peer's identity, and what the peer may do, must be checked
  // in each call. A copy of this object must outlive the server.
  std::shared_ptr<grpc::ServerCredentials> ForServer() const;
  // Credentials for a channel that connects only to ps task `ps` of the same
  // training, on whatever host: host names are not compared.
  std::shared_ptr<grpc::ChannelCredentials> ForChannel(uint32_t ps) const;
  // The server name (SNI) to request of ps task `ps`. Requires secure().
  std::string HostName(uint32_t ps) const;

  // Paths at which OpenSSL finds the certificates in use, as PEM. Requires
  // secure(). The paths are valid while any copy of this object lives.
  struct Paths {
    std::string authorities;
    // The file with this process's certificate and its key.
    std::string own;
  };
  Paths paths() const;

 private:
  struct Impl;
  explicit Credentials(std::shared_ptr<const Impl> impl)
      : impl_(std::move(impl)) {}

  // Null if there are no credentials.
  std::shared_ptr<const Impl> impl_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_RPC_CREDENTIALS_H_
