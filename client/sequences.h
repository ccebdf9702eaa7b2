#ifndef HOLDFAST_CLIENT_SEQUENCES_H_
#define HOLDFAST_CLIENT_SEQUENCES_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "common/job/ids.h"

namespace holdfast::client {

// The numbers of a worker's pushes, what shards have given for them, and up to
// which of them the cluster may forget verdicts (`acked_through`).
//
// A number is settled when its verdict is known here, or when it cannot matter
// any more: no handle holds it, and a version above its step has been seen, so
// its step is closed. It must not be settled earlier: a push that was offered
// and then let go of may still be in its step. Nor never: the cluster refuses
// pushes that run kMaxUnacknowledgedPushes ahead of the mark. A push of an
// asynchronous job is of no step: its number is settled when the coordinator
// has booked it as spent.
//
// Thread-compatible.
class Sequences {
 public:
  // The next number, held once. `step`: of the push, where known.
  PushSequence Take(std::optional<GlobalStep> step);

  // Another handle for the number. A settled one may still be held: nothing
  // happens.
  void Hold(PushSequence sequence, std::optional<GlobalStep> step);
  void Release(PushSequence sequence);

  // The ps holds the push whole, and has given this for it. Kept until the
  // number is settled.
  void KeepReceipt(PushSequence sequence, uint32_t ps, uint64_t receipt);
  // By ps; 0, or too few, where none was given.
  std::vector<uint64_t> Receipts(PushSequence sequence) const;

  // The verdict is known, or booked.
  void Settle(PushSequence sequence);
  // `version` was read on every shard.
  void Reached(GlobalStep version);

  // Every number up to this is settled. 0: none.
  PushSequence acked_through() const { return acked_through_; }

 private:
  struct Entry {
    std::optional<GlobalStep> step;
    int holders = 0;
    bool settled = false;
    std::vector<uint64_t> receipts;
  };

  Entry* Find(PushSequence sequence);
  void Advance();

  PushSequence acked_through_;
  // Of acked_through_ + 1 and those that follow.
  std::deque<Entry> entries_;
  // The highest version seen.
  GlobalStep reached_;
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_SEQUENCES_H_
