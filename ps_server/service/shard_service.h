#ifndef HOLDFAST_PS_SERVER_SERVICE_SHARD_SERVICE_H_
#define HOLDFAST_PS_SERVER_SERVICE_SHARD_SERVICE_H_

#include <memory>

#include "common/strand.h"
#include "ps_server/shard/shard.h"

namespace grpc {
class Service;
}  // namespace grpc

namespace holdfast {

// proto::Shard over gRPC: hands each well-formed call to `shard`, which lives
// on `strand`. Both must outlive the gRPC server.
std::unique_ptr<grpc::Service> MakeShardService(Shard* shard, Strand* strand);

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SERVICE_SHARD_SERVICE_H_
