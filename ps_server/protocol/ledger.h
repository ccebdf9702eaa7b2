// SPDX-License-Identifier: Apache-2.0
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

// The verdict on a push, and its details.
struct Decision {
  proto::Verdict verdict = proto::VERDICT_UNSPECIFIED;
  // The fields below are set for asynchronous pushes that were applied. They
  // are as in proto::ApplyRequest and proto::ApplyResponse.
  float clip_factor = 1;
  uint64_t examples = 0;
  uint64_t staleness = 0;
  bool not_finite = false;
};

// The verdicts on the pushes that a shard has decided, so that a push that is
// resent, however late, gets its first verdict.
//
// A worker states up to which sequence it knows its verdicts: its mark.
// Verdicts up to the mark are forgotten, and these pushes count as decided for
// ever. The sequences above the mark that the worker may use are limited in
// number.
//
// Thread-compatible.
// Invariant: at most kMaxUnacknowledgedPushes verdicts are kept for each life.
class Ledger {
 public:
  // Sets the worker's mark to `sequence`, and forgets the verdicts up to it.
  // Does nothing if the mark is higher already.
  void AckThrough(const WorkerLife& from, PushSequence sequence);

  // Returns the verdict on `push`; absent if it is not decided. If the verdict
  // was forgotten, returns STALE, because the worker received the verdict long
  // ago.
  std::optional<proto::Verdict> Find(const PushId& push) const;

  // Returns the whole decision on `push`; null if the push is not decided, or
  // if the decision was forgotten.
  const Decision* FindDecision(const PushId& push) const;

  // The highest decided sequence of `from`; 0 if there is none. In asynchronous
  // jobs pushes are decided in order, so the sequence after it is decided next.
  PushSequence DecidedThrough(const WorkerLife& from) const;

  // The lives that have a mark or a decision.
  std::vector<WorkerLife> Lives() const;

  // The decisions of `from` that are kept.
  const std::map<PushSequence, Decision>& Kept(const WorkerLife& from) const;

  // Errors: FAILED_PRECONDITION when `push` is too far above the worker's mark
  // for its verdict to be kept.
  absl::Status CheckInWindow(const PushId& push) const;

  // Records the decision on `push`, unless there already is one. If its worker
  // has acknowledged nothing for a whole window, like a worker whose pushes all
  // have weight 0 and reach no shard, the oldest decision is forgotten.
  void Record(const PushId& push, const Decision& decision);
  void Record(const PushId& push, proto::Verdict verdict) {
    Record(push, Decision{verdict});
  }

  // Forgets the verdicts and the mark of a life about which nothing more will
  // be asked.
  void Forget(const WorkerLife& from) { lives_.erase(from); }

  // The number of verdicts kept.
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
