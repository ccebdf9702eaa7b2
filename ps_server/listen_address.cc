// SPDX-License-Identifier: Apache-2.0
#include "ps_server/listen_address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/job/cluster_spec.h"

namespace holdfast {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

absl::StatusOr<AddressList> LookUp(const HostPort& where) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(
      where.host.c_str(), absl::StrCat(where.port).c_str(), &hints, &found);
  if (error != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "host \"", where.host, "\" has no address: ", gai_strerror(error)));
  }
  return AddressList(found, &freeaddrinfo);
}

const addrinfo* Choose(const addrinfo* list) {
  for (const addrinfo* info = list; info != nullptr; info = info->ai_next) {
    if (info->ai_family == AF_INET) return info;
  }
  return list;
}

// Finds errors that gRPC would only log. gRPC binds without SO_REUSEPORT, as
// this does.
absl::Status TryPort(const addrinfo& info) {
  const int fd = socket(info.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const absl::Cleanup close_fd = [fd] { close(fd); };
  const int on = 1;
  if (fd >= 0 &&
      setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
      bind(fd, info.ai_addr, info.ai_addrlen) == 0 && listen(fd, 1) == 0) {
    return absl::OkStatus();
  }
  switch (errno) {
    case EADDRINUSE:
      return absl::UnavailableError("the port is in use by another process");
    case EADDRNOTAVAIL:
      return absl::UnavailableError(
          "the address does not belong to this machine");
    default:
      return absl::UnavailableError(strerror(errno));
  }
}

}  // namespace

absl::StatusOr<std::string> ListenAddress(absl::string_view address,
                                          bool others) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto where, ParseHostPort(address));
  HOLDFAST_ASSIGN_OR_RETURN(const auto list, LookUp(where));
  const addrinfo& info = *Choose(list.get());

  char host[NI_MAXHOST];
  const int error = getnameinfo(info.ai_addr, info.ai_addrlen, host,
                                sizeof(host), nullptr, 0, NI_NUMERICHOST);
  if (error != 0) return absl::InternalError(gai_strerror(error));
  if (!IsLoopback(host) && !others) {
    return absl::PermissionDeniedError(
        absl::StrCat(host,
                     " can be reached from other machines, and nothing is "
                     "encrypted: encrypt with --tls_dir, allow this with "
                     "--insecure, or use a loopback address"));
  }
  HOLDFAST_RETURN_IF_ERROR(TryPort(info));
  return HostPort{host, where.port}.ToString();
}

}  // namespace holdfast
