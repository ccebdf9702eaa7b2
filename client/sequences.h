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
// must be settled at some point, because the cluster refuses pushes whose
// numbers are kMaxUnacknowledgedPushes ahead of acked_through(). A push of an
// asynchronous job belongs to no step: its number is settled when the
// coordinator has booked it as spent.
//
// Thread-compatible.
class Sequences {
 public:
  // Returns the next number, which the caller holds until Release. `step`: the
  // step of the push, if known.
  PushSequence Take(std::optional<GlobalStep> step);

  // Notes that one more handle holds the number. Does nothing if the number is
  // already settled.
  void Hold(PushSequence sequence, std::optional<GlobalStep> step);
  void Release(PushSequence sequence);

  // Keeps the receipt that a ps has given because it holds the whole push,
  // until the number is settled.
  void KeepReceipt(PushSequence sequence, uint32_t ps, uint64_t receipt);
  // The receipts for a push, indexed by ps. If a ps has given none, its element
  // is 0, or beyond the end.
  std::vector<uint64_t> Receipts(PushSequence sequence) const;

  // Settles the number, because its verdict is known or, in an asynchronous
  // job, because the coordinator has booked it as spent.
  void Settle(PushSequence sequence);
  // Notes that `version` was read from every shard, so all earlier steps are
  // closed.
  void Reached(GlobalStep version);

  // The number up to which all numbers are settled; 0 if the first one is not.
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
