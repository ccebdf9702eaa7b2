// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_SAME_HOST_H_
#define HOLDFAST_PS_SERVER_SAME_HOST_H_

#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/shared_memory/arena.h"
#include "ps_server/service/neighbors.h"

namespace holdfast {

// What a ps needs to pass tensors through shared memory to and from processes
// of its host (docs/protocol/same_host.md).
struct SameHost {
  // Both are null if the ps shares no memory.
  std::shared_ptr<SharedArena> arena;
  std::unique_ptr<Neighbors> neighbors;
  // The reason why `arena` and `neighbors` are null, for people; empty if they
  // are not.
  std::string why_not;
};

struct SameHostOptions {
  // The ps's name, for the log.
  std::string name;
  // Whether to share memory if that is possible (--same_host=auto).
  bool enabled = true;
  // The directory of the socket (--same_host_dir). If it is empty, a directory
  // that only this user can access is used, in $XDG_RUNTIME_DIR or /tmp.
  std::string directory;
  // Whether callers must present a certificate.
  bool secure = false;
  // Must outlive the SameHost.
  const Clock* clock = nullptr;
};

// Prepares the sharing of memory. If memory cannot be shared, logs the reason
// once; the ps then sends the bytes of tensors over gRPC.
SameHost StartSameHost(const SameHostOptions& options);

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SAME_HOST_H_
