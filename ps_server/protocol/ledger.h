#ifndef HOLDFAST_PS_SERVER_PROTOCOL_LEDGER_H_
#define HOLDFAST_PS_SERVER_PROTOCOL_LEDGER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "common/job/ids.h"
#include "proto/cluster.pb.h"
#include "ps_server/protocol/indexed_map.h"
#include "ps_server/protocol/push_id.h"

namespace holdfast {

// What became of a push, and how.
struct Decision {
  proto::Verdict verdict = proto::VERDICT_UNSPECIFIED;
  // Asynchronous pushes that were applied: as in proto::ApplyRequest and
  // proto::ApplyResponse.
  float clip_factor = 1;
  uint64_t examples = 0;
  uint64_t staleness = 0;
  bool not_finite = false;
};

// What became of the pushes that a shard has decided: so that a push sent
// again, however late, gets its first verdict.
//
// A worker says up to which sequence it knows its verdicts; those are
// forgotten, and count as decided for ever. The window above is bounded.
//
// Thread-compatible.
// Invariant: at most kMaxUnacknowledgedPushes verdicts are kept of each life.
class Ledger {
 public:
  // Forgets verdicts at or below `sequence`. A lower mark than before does
  // nothing.
  void AckThrough(const WorkerLife& from, PushSequence sequence);

  // The verdict of `push`, when it is decided: STALE for a forgotten one, whose
  // worker had its verdict long ago.
  std::optional<proto::Verdict> Find(const PushId& push) const;

  // The same with the rest of the decision; null also for a forgotten push.
  const Decision* FindDecision(const PushId& push) const;

  // The highest sequence of `from` that is decided; those of asynchronous jobs
  // are decided in order, so that the next one follows it.
  PushSequence DecidedThrough(const WorkerLife& from) const;

  // The lives that something is known of.
  std::vector<WorkerLife> Lives() const;

  // The decisions of `from` that are kept.
  const std::map<PushSequence, Decision>& Kept(const WorkerLife& from) const;

  // Errors: FAILED_PRECONDITION when `push` is too far above the worker's mark
  // for its verdict to be kept.
  absl::Status CheckInWindow(const PushId& push) const;

  // Notes the decision on `push`, unless one stands. Where its worker has
  // acknowledged nothing for a whole window, as one whose pushes are all of
  // weight 0 and reach no shard, the oldest is forgotten.
  void Record(const PushId& push, const Decision& decision);
  void Record(const PushId& push, proto::Verdict verdict) {
    Record(push, Decision{verdict});
  }

  // Forgets a life of which nothing more is to be asked, its mark too.
  void Forget(const WorkerLife& from) { lives_.erase(from); }

  // Verdicts that are kept.
  size_t size() const;

 private:
  struct Life {
    PushSequence acked_through;
    std::map<PushSequence, Decision> decisions;
  };

  IndexedMap<WorkerLife, Life> lives_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_PROTOCOL_LEDGER_H_
