// SPDX-License-Identifier: Apache-2.0
#include "ps_server/service/health_service.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_split.h"
#include "common/rpc/diagnosis.h"
#include "common/rpc/message_bytes.h"
#include "proto/health.pb.h"

namespace holdfast {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

}  // namespace

RpcMethods HealthMethods(const TaskId& self, const RpcMethods& others) {
  // The empty name stands for the server as a whole.
  std::set<std::string> services = {"", "grpc.health.v1.Health",
                                    self.ToString()};
  for (const auto& [name, handler] : others) {
    // "/holdfast.proto.Shard/Push".
    const std::vector<std::string> parts = absl::StrSplit(name, '/');
    services.insert(parts[1]);
  }
  RpcMethods methods;
  methods[kHealthCheck] = [services = std::move(services), self](
                              const Caller&, grpc::ByteBuffer bytes,
                              Reply<grpc::ByteBuffer> reply) {
    HealthCheckRequest request;
    absl::Status status = FromBytes(&bytes, &request);
    if (status.ok() && services.count(request.service()) == 0) {
      status = NoSuchService(request.service(), self);
    }
    HealthCheckResponse response;
    response.set_status(HealthCheckResponse::SERVING);
    grpc::ByteBuffer answer;
    if (status.ok()) status = ToBytes(response, &answer);
    if (!status.ok()) return reply(std::move(status));
    reply(std::move(answer));
  };
  return methods;
}

}  // namespace holdfast
