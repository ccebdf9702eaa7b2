#ifndef HOLDFAST_PS_SERVER_SERVICE_SHARD_SERVICE_H_
#define HOLDFAST_PS_SERVER_SERVICE_SHARD_SERVICE_H_

#include <string>

#include "ps_server/service/push_pull.h"
#include "ps_server/service/rpc_server.h"

namespace holdfast {

// proto::Shard: hands each well-formed call to the shard. The machines must
// outlive the server; only where the job has no other ps is there a coordinator
// among them. `no_links`: why there are no neighbors among them, if so.
RpcMethods ShardMethods(const Machines& machines, const std::string& no_links);

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SERVICE_SHARD_SERVICE_H_
