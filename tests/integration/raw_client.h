// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_TESTS_INTEGRATION_RAW_CLIENT_H_
#define HOLDFAST_TESTS_INTEGRATION_RAW_CLIENT_H_

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/rpc/credentials.h"
#include "proto/coordinator.grpc.pb.h"
#include "proto/shard.grpc.pb.h"

namespace grpc {
class Channel;
}  // namespace grpc

namespace holdfast {

// Sends arbitrary requests to one ps, without the checks of the client library.
// Thread-safe.
class RawClient {
 public:
  // `ps`: the task that is expected at `address`, if the credentials are
  // secure.
  explicit RawClient(const std::string& address, uint32_t ps = 0,
                     const Credentials& credentials = {});
  explicit RawClient(std::shared_ptr<grpc::Channel> channel);

  // Calls a method, such as "Shard.Push"; requests and responses are
  // textprotos. Errors: those of the server, or of gRPC, such as
  // DEADLINE_EXCEEDED after `timeout`.
  absl::StatusOr<std::string> Call(absl::string_view method,
                                   const std::string& request,
                                   absl::Duration timeout) const;

  // Sends the bytes of `request` unchanged to any method, such as
  // "/grpc.health.v1.Health/Check".
  absl::StatusOr<std::string> CallBytes(const std::string& path,
                                        const std::string& request,
                                        absl::Duration timeout) const;

 private:
  using Method = std::function<absl::StatusOr<std::string>(
      const std::string& request, absl::Duration timeout)>;

  template <typename Stub, typename Request, typename Response>
  void Add(const std::string& name, Stub* stub,
           grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                        Response*));

  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<proto::Coordinator::Stub> coordinator_;
  const std::unique_ptr<proto::Shard::Stub> shard_;
  std::map<std::string, Method, std::less<>> methods_;
};

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_INTEGRATION_RAW_CLIENT_H_
