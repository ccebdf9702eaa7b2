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
  // Null, both: it passes none.
  std::shared_ptr<SharedArena> arena;
  std::unique_ptr<Neighbors> neighbors;
  // Why not, for people.
  std::string why_not;
};

struct SameHostOptions {
  // Of the ps, for the log.
  std::string name;
  // --same_host=auto.
  bool enabled = true;
  // --same_host_dir. Empty: one of this user's own, in $XDG_RUNTIME_DIR or
  // /tmp.
  std::string directory;
  // Whether whoever calls shows a certificate.
  bool secure = false;
  // Must outlive what is made.
  const Clock* clock = nullptr;
};

// What cannot be had is told in the log, once, and gone without: the ps sends
// bytes then.
SameHost StartSameHost(const SameHostOptions& options);

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SAME_HOST_H_
