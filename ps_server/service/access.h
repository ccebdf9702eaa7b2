// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_SERVICE_ACCESS_H_
#define HOLDFAST_PS_SERVER_SERVICE_ACCESS_H_

#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "common/rpc/identity.h"
#include "proto/cluster.pb.h"
#include "proto/coordinator.pb.h"

namespace holdfast {

// The identity of a caller, from its certificate; nullopt on a server without
// certificates, which believes what a request says about its sender.
using Caller = std::optional<Identity>;

// The roles that may call `method` ("/holdfast.proto.Shard/Push"); none if
// there is no such method.
//
// A role is the JOB of an Identity, or "coordinator" for ps task 0, which has
// the role "ps" as well.
std::set<std::string> RolesOf(const std::string& method);

// Checks that `caller` may call `method`.
// Errors: PERMISSION_DENIED, naming caller and method, when it may not;
// UNAUTHENTICATED when the caller belongs to a training other than `training`.
absl::Status CheckAccess(const std::string& training, const Caller& caller,
                         const std::string& method);

// Checks that the caller is the sender that the request names; an operator must
// be named as a "client", of any index.
// Errors: PERMISSION_DENIED, naming caller and sender.
absl::Status CheckSender(const Caller& caller, const proto::Sender& sender);

// Makes the check of CheckSender for the sender of `request`. A request whose
// type has no sender passes.
template <typename Request>
auto CheckSenderOf(const Caller& caller, const Request& request, int)
    -> decltype(request.sender(), absl::Status()) {
  return CheckSender(caller, request.sender());
}
template <typename Request>
absl::Status CheckSenderOf(const Caller&, const Request&, long) {
  return absl::OkStatus();
}

// A Stop without a sender is an operator's.
absl::Status CheckSenderOf(const Caller& caller,
                           const proto::StopRequest& request, int);

// Checks that the caller's role may call the method with this request, for
// methods that a role may use only in part.
// Errors: PERMISSION_DENIED, naming the caller.
absl::Status CheckUse(const Caller& caller, const proto::StopRequest& request);
template <typename Request>
absl::Status CheckUse(const Caller&, const Request&) {
  return absl::OkStatus();
}

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SERVICE_ACCESS_H_
