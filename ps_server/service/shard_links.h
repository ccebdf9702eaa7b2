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
// time for which it is parked there. The coordinator calls again by itself;
// this bounds the time that a vanished ps costs.
inline constexpr absl::Duration kShardCallTimeout = absl::Seconds(30);

struct ShardLinksOptions {
  // The queue for calls to other ps; polled elsewhere.
  CallQueue* queue = nullptr;
  // For the connections to other ps.
  Credentials credentials;
  // The shard in the coordinator's process is called without gRPC.
  uint32_t local_ps = 0;
  Shard* local_shard = nullptr;
  Strand* local_strand = nullptr;
  // The coordinator's strand: it calls from there, and replies are posted to
  // it.
  Strand* coordinator_strand = nullptr;
  absl::Duration call_timeout = kShardCallTimeout;
  // Records the calls to the local shard. May be null.
  CallRecorder* recorder = nullptr;
};

// Links over gRPC, with a control connection for each other ps. A failed call's
// error names the call and the ps.
//
// Must be destroyed after the coordinator's strand has stopped, and before the
// strands are destroyed: the destructor cancels the calls in progress and waits
// for them to end.
std::unique_ptr<ShardLinks> MakeShardLinks(const ShardLinksOptions& options);

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SERVICE_SHARD_LINKS_H_
