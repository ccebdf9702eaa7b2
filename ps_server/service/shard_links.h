#ifndef HOLDFAST_PS_SERVER_SERVICE_SHARD_LINKS_H_
#define HOLDFAST_PS_SERVER_SERVICE_SHARD_LINKS_H_

#include <cstdint>
#include <memory>

#include "absl/time/time.h"
#include "common/base/strand.h"
#include "common/rpc/call_queue.h"
#include "common/rpc/credentials.h"
#include "ps_server/protocol/shard_messages.h"
#include "ps_server/service/call_recorder.h"
#include "ps_server/shard/shard.h"

namespace holdfast {

// How long the coordinator's call to another ps may take, beside what it is
// parked there. It asks again itself; this bounds what a ps that has vanished
// costs.
inline constexpr absl::Duration kShardCallTimeout = absl::Seconds(30);

struct ShardLinksOptions {
  // For the calls to other ps. Others poll it.
  CallQueue* queue = nullptr;
  // For the connections with them.
  Credentials credentials;
  // The shard beside the coordinator is called without gRPC.
  uint32_t local_ps = 0;
  Shard* local_shard = nullptr;
  Strand* local_strand = nullptr;
  // Where the coordinator lives: it calls from there, and replies are posted
  // there.
  Strand* coordinator_strand = nullptr;
  absl::Duration call_timeout = kShardCallTimeout;
  // Of the calls to the shard beside. Null: nobody records them.
  CallRecorder* recorder = nullptr;
};

// Links over gRPC, with a control connection for each other ps. A failed call's
// error names the call and the ps.
//
// To be destroyed after the coordinator's strand has stopped, and before the
// strands are destroyed: the destructor cancels the calls that are under way
// and waits for their end.
std::unique_ptr<ShardLinks> MakeShardLinks(const ShardLinksOptions& options);

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SERVICE_SHARD_LINKS_H_
