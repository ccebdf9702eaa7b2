// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_PROTOCOL_RECEIPTS_H_
#define HOLDFAST_PS_SERVER_PROTOCOL_RECEIPTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/job/ids.h"
#include "google/protobuf/repeated_field.h"
#include "proto/cluster.pb.h"
#include "ps_server/protocol/push_id.h"
#include "ps_server/protocol/siphash.h"

namespace holdfast {

// Makes and checks receipts. A receipt proves to the coordinator or to a shard
// what another of them has told a worker, so that they need not trust the
// worker (docs/protocol/life_of_a_step.md, P1; docs/protocol/asynchronous.md,
// P2 and P3).
//
// A receipt is a 64-bit code (ps_server/protocol/siphash.h) of a statement,
// under a key that only the coordinator and the shards know, and that is
// different in each generation. It is never 0, which stands for no receipt. The
// same statement always has the same receipt.
//
// Immutable, and so thread-safe.
class Receipts {
 public:
  // Indexed by ps, as in requests.
  using ByPs = google::protobuf::RepeatedField<uint64_t>;
  using Scalars = google::protobuf::RepeatedPtrField<proto::StepScalars>;

  // Makes the key of a generation from `secret`, which only its coordinator
  // knows and which must have kKeyBytes.
  static constexpr size_t kKeyBytes = SipHash::kKeyBytes;
  static std::string MakeKey(absl::string_view secret, Generation generation);

  // `key` must have kKeyBytes. `slices` are the slices of all ps.
  Receipts(absl::string_view key, Generation generation,
           const proto::Declaration& declaration,
           const google::protobuf::RepeatedPtrField<proto::Slice>& slices,
           uint32_t num_ps);

  // Whether the ps holds anything trainable. If there are embedding tables,
  // every ps does, because rows may be on any ps. A ps that holds nothing
  // trainable gets no part of any push, and gives no receipts.
  bool receives(uint32_t ps) const { return receives_[ps]; }

  // Returns the receipt for the statement that the ps holds the whole push.
  // `step` is the step on whose parameters the push was computed; absent in
  // asynchronous jobs, where it may differ from ps to ps.
  uint64_t Held(uint32_t ps, const PushId& push,
                std::optional<GlobalStep> step) const;
  // Returns the receipt for the statement that the ps has applied the push.
  uint64_t Applied(uint32_t ps, const PushId& push) const;
  // Returns the receipt for the statement that `scalars` are those of the
  // ticket that the push holds.
  uint64_t OfTicket(const PushId& push, const Scalars& scalars) const;

  // CheckHeld: checks that `receipts` has the right receipt of every ps that
  // receives pushes, other than `own`. CheckApplied: the same for receipts from
  // Applied, of every ps.
  // Errors: FAILED_PRECONDITION, naming the first ps whose receipt is missing
  // or wrong.
  absl::Status CheckHeld(const PushId& push, std::optional<GlobalStep> step,
                         const ByPs& receipts,
                         std::optional<uint32_t> own = std::nullopt) const;
  absl::Status CheckApplied(const PushId& push, const ByPs& receipts) const;
  // Errors: FAILED_PRECONDITION.
  absl::Status CheckTicket(const PushId& push, const Scalars& scalars,
                           uint64_t receipt) const;

 private:
  // The kind of a statement. The numbers must not change within a protocol
  // version.
  enum Kind : uint64_t { kHeld = 1, kApplied = 2, kTicket = 3 };

  uint64_t Make(Kind kind, uint32_t ps, const PushId& push,
                absl::Span<const uint64_t> rest) const;

  const SipHash hash_;
  const Generation generation_;
  std::vector<bool> receives_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_PROTOCOL_RECEIPTS_H_
