// SPDX-License-Identifier: Apache-2.0
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

// How long the coordinator's call to another ps may take, in addition to the
// time for which it is parked there. The coordinator repeats the call by
// itself; the timeout bounds the time that is lost when a ps has vanished.
inline constexpr absl::Duration kShardCallTimeout = absl::Seconds(30);

struct ShardLinksOptions {
  // The queue for calls to other ps. Other threads must poll it.
  CallQueue* queue = nullptr;
  // The credentials for the connections to other ps.
  Credentials credentials;
  // The ps, shard and strand of the coordinator's own process, whose shard is
  // called without gRPC.
  uint32_t local_ps = 0;
  Shard* local_shard = nullptr;
  Strand* local_strand = nullptr;
  // The coordinator's strand, on which the coordinator makes its calls and gets
  // the replies.
  Strand* coordinator_strand = nullptr;
  absl::Duration call_timeout = kShardCallTimeout;
  // Records the calls to the local shard. May be null.
  CallRecorder* recorder = nullptr;
};

// Makes the coordinator's links to the shards: over gRPC, with a control
// connection for each other ps. A failed call's error names the call and the
// ps.
//
// Must be destroyed after the coordinator's strand has stopped, and before the
// strands are destroyed: the destructor cancels the calls in progress and waits
// for them to end.
std::unique_ptr<ShardLinks> MakeShardLinks(const ShardLinksOptions& options);

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SERVICE_SHARD_LINKS_H_
