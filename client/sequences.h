// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLIENT_SEQUENCES_H_
#define HOLDFAST_CLIENT_SEQUENCES_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "common/job/ids.h"

namespace holdfast::client {

// The sequence numbers of a worker's pushes, the receipts that shards have
// given for them, and the number up to which the cluster may forget verdicts
// (`acked_through`).
//
// A number is settled when its verdict is known here, or when the verdict no
// longer matters: no handle holds the number, and a version above its step has
// been seen, so its step is closed. It must not be settled earlier, because a
// push that was offered and then abandoned may still be in its step; but it
// must be settled at some point, because the cluster refuses pushes that run
// kMaxUnacknowledgedPushes ahead of the mark. A push of an asynchronous job
// belongs to no step: its number is settled when the coordinator has booked it
// as spent.
//
// Thread-compatible.
class Sequences {
 public:
  // The next number, held once. `step`: the step of the push, if known.
  PushSequence Take(std::optional<GlobalStep> step);

  // Another handle holds the number. Does nothing if the number is settled,
  // which is allowed.
  void Hold(PushSequence sequence, std::optional<GlobalStep> step);
  void Release(PushSequence sequence);

  // The ps holds the whole push, and has given this receipt for it. Kept until
  // the number is settled.
  void KeepReceipt(PushSequence sequence, uint32_t ps, uint64_t receipt);
  // Indexed by ps; 0, or beyond the end, if no receipt was given.
  std::vector<uint64_t> Receipts(PushSequence sequence) const;

  // The verdict is known, or booked.
  void Settle(PushSequence sequence);
  // `version` was read from every shard.
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
  // The entries of acked_through_ + 1 and the following numbers.
  std::deque<Entry> entries_;
  // The highest version seen.
  GlobalStep reached_;
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_SEQUENCES_H_
