// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_SERVICE_SHARD_SERVICE_H_
#define HOLDFAST_PS_SERVER_SERVICE_SHARD_SERVICE_H_

#include <string>

#include "ps_server/service/push_pull.h"
#include "ps_server/service/rpc_server.h"

namespace holdfast {

// The methods of proto::Shard: each well-formed call is passed to the shard.
// The machines must outlive the server. `no_links` says why machines.neighbors
// is null, if it is.
RpcMethods ShardMethods(const Machines& machines, const std::string& no_links);

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SERVICE_SHARD_SERVICE_H_
