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
// or claim to be.
std::vector<std::string> IdentityUrisOf(const x509_st& certificate);

// What a process shows its peers, and asks of them: certificates of one
// authority (docs/operating/security.md), or nothing.
//
// A copy is cheap, and is the same. Thread-safe.
class Credentials {
 public:
  // Nothing: connections are not encrypted, and everybody is believed.
  Credentials() = default;

  // Mutual TLS with the files of a folder, all PEM, under the names that
  // Kubernetes gives them:
  //   ca.crt   whose certificates are accepted, one authority or several
  //   tls.crt  the own certificate, and those between it and the authority
  //   tls.key  its private key, without a passphrase
  // For as long as any copy lives, the files are looked at again each second;
  // when they have changed, and are as sound as they were, connections made
  // from then on have the new ones. Otherwise the log says why not.
  //
  // Errors, with the file's name: NOT_FOUND when it cannot be read;
  // INVALID_ARGUMENT when it is not what it should be, the key is another
  // certificate's, the certificate was not signed by the authority, is not
  // valid yet or any more, or has no identity. RESOURCE_EXHAUSTED when the
  // process has no descriptor left.
  static absl::StatusOr<Credentials> FromFolder(const std::string& folder);

  bool secure() const { return impl_ != nullptr; }
  // The own one, as it was read first. Where secure().
  const Identity& identity() const;

  // Takes whoever shows a certificate of the authority. Who that is, and what
  // he may do, is to be tested with each call. A copy of this object must
  // outlive the server.
  std::shared_ptr<grpc::ServerCredentials> ForServer() const;
  // Connects with nobody but ps task `ps` of the own training, wherever that
  // is: names of hosts are not compared.
  std::shared_ptr<grpc::ChannelCredentials> ForChannel(uint32_t ps) const;
  // What to ask a server for (SNI) that may be this ps task; where secure().
  std::string HostName(uint32_t ps) const;

  // Where OpenSSL finds, as PEM, what is in use; where secure(). Valid while
  // any copy lives.
  struct Paths {
    std::string authorities;
    // The own certificate, and its key.
    std::string own;
  };
  Paths paths() const;

 private:
  struct Impl;
  explicit Credentials(std::shared_ptr<const Impl> impl)
      : impl_(std::move(impl)) {}

  // Null: nothing.
  std::shared_ptr<const Impl> impl_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_RPC_CREDENTIALS_H_
