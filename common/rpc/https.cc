// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/https.h"

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/rpc/identity.h"

namespace holdfast {
namespace {

absl::StatusOr<std::string> ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), {});
  if (text.empty()) {
    return absl::UnavailableError(absl::StrCat(path, ": cannot be read"));
  }
  return text;
}

absl::Status CheckOperator(const std::string& training,
                           const x509_st& certificate) {
  const std::vector<std::string> uris = IdentityUrisOf(certificate);
  if (uris.size() != 1) {
    return absl::UnauthenticatedError(
        uris.empty() ? "the certificate has no identity (holdfast://...)"
                     : "the certificate has more than one identity");
  }
  HOLDFAST_ASSIGN_OR_RETURN(const auto peer, ParseIdentity(uris[0]));
  if (peer.training != training) {
    return absl::UnauthenticatedError(
        absl::StrCat("this task belongs to the training \"", training,
                     "\", not to that of ", uris[0]));
  }
  if (peer.task.job == kOperatorJob) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      uris[0],
      " may not read this port: use the certificate of an operator, "
      "as `holdfast certs` makes it"));
}

}  // namespace

HttpServer::Tls HttpsForOperators(const Credentials& credentials) {
  HttpServer::Tls tls;
  // The captured copy of the credentials keeps the files alive.
  tls.pem = [credentials]() -> absl::StatusOr<HttpServer::Tls::Pem> {
    const Credentials::Paths paths = credentials.paths();
    HOLDFAST_ASSIGN_OR_RETURN(auto authorities, ReadAll(paths.authorities));
    HOLDFAST_ASSIGN_OR_RETURN(auto own, ReadAll(paths.own));
    return HttpServer::Tls::Pem{std::move(authorities), std::move(own)};
  };
  tls.admit =
      [training = credentials.identity().training](const x509_st& certificate) {
        return CheckOperator(training, certificate);
      };
  return tls;
}

}  // namespace holdfast
