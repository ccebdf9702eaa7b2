#ifndef HOLDFAST_PS_SERVER_SERVICE_SHARD_SERVICE_H_
#define HOLDFAST_PS_SERVER_SERVICE_SHARD_SERVICE_H_

#include <memory>

#include "ps_server/service/push_pull.h"

namespace grpc {
class Service;
}  // namespace grpc

namespace holdfast {

// proto::Shard over gRPC: hands each well-formed call to the shard. The
// machines must outlive the gRPC server; only where the job has no other ps is
// there a coordinator among them.
std::unique_ptr<grpc::Service> MakeShardService(const Machines& machines);

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SERVICE_SHARD_SERVICE_H_
