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

// Receipts prove to the coordinator and to the shards what one of them has told
// a worker, so that none has to take the worker's word for it
// (docs/protocol/life_of_a_step.md, P1; docs/protocol/asynchronous.md, P2 and
// P3).
//
// A receipt is a code of 64 bits (ps_server/protocol/siphash.h) over what it
// states, under a key that coordinator and shards alone know and that is
// another in each generation. It is never 0, which stands for none. The same
// statement has the same receipt, however often it is given.
//
// Immutable, and so thread-safe.
class Receipts {
 public:
  // By ps, as in requests.
  using ByPs = google::protobuf::RepeatedField<uint64_t>;
  using Scalars = google::protobuf::RepeatedPtrField<proto::StepScalars>;

  // The key of a generation, from what only its coordinator knows (kKeyBytes).
  static constexpr size_t kKeyBytes = SipHash::kKeyBytes;
  static std::string MakeKey(absl::string_view secret, Generation generation);

  // `key` must have kKeyBytes. `slices`: of all ps.
  Receipts(absl::string_view key, Generation generation,
           const proto::Declaration& declaration,
           const google::protobuf::RepeatedPtrField<proto::Slice>& slices,
           uint32_t num_ps);

  // Whether the ps holds anything that is trained: all do where there are
  // embedding tables, whose rows may be anywhere. One that does not
  // gets nothing of any push, and gives no receipts.
  bool receives(uint32_t ps) const { return receives_[ps]; }

  // The ps holds the push whole. `step`: on whose parameters it was computed;
  // absent in asynchronous jobs, where that may be another on each ps.
  uint64_t Held(uint32_t ps, const PushId& push,
                std::optional<GlobalStep> step) const;
  // The ps has applied the push.
  uint64_t Applied(uint32_t ps, const PushId& push) const;
  // These are the scalars of the ticket that the push holds.
  uint64_t OfTicket(const PushId& push, const Scalars& scalars) const;

  // Whether `receipts` are those of all ps, apart from `own`.
  // Errors: FAILED_PRECONDITION, with the name of the first ps whose receipt is
  // missing or wrong.
  absl::Status CheckHeld(const PushId& push, std::optional<GlobalStep> step,
                         const ByPs& receipts,
                         std::optional<uint32_t> own = std::nullopt) const;
  absl::Status CheckApplied(const PushId& push, const ByPs& receipts) const;
  // Errors: FAILED_PRECONDITION.
  absl::Status CheckTicket(const PushId& push, const Scalars& scalars,
                           uint64_t receipt) const;

 private:
  // What is stated. Values must not change within a protocol version.
  enum Kind : uint64_t { kHeld = 1, kApplied = 2, kTicket = 3 };

  uint64_t Make(Kind kind, uint32_t ps, const PushId& push,
                absl::Span<const uint64_t> rest) const;

  const SipHash hash_;
  const Generation generation_;
  std::vector<bool> receives_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_PROTOCOL_RECEIPTS_H_
