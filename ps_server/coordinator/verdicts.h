#ifndef HOLDFAST_PS_SERVER_COORDINATOR_VERDICTS_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_VERDICTS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "common/job/ids.h"
#include "proto/coordinator.pb.h"
#include "ps_server/coordinator/job_declaration.h"
#include "ps_server/protocol/ledger.h"
#include "ps_server/protocol/push_id.h"
#include "ps_server/protocol/receipts.h"

namespace holdfast {

// What the coordinator has decided about pushes of a generation, for as long as
// their workers may ask; and the receipts by which a worker proves what it says
// of a push before that is believed (docs/protocol/life_of_a_step.md,
// Receipts).
//
// Thread-compatible.
// Invariant: a push that was given a verdict gets the same one.
class Verdicts {
 public:
  // A generation is over: nothing is known, and no receipt is right.
  void Reset();
  // The shards of a generation are being restored. Returns the key of its
  // receipts, which they need.
  std::string MakeReceipts(const std::string& secret, Generation generation,
                           const JobDeclaration& declared, uint32_t num_ps);

  // Those of Ledger.
  std::optional<proto::Verdict> Find(const PushId& push) const {
    return ledger_.Find(push);
  }
  absl::Status CheckInWindow(const PushId& push) const {
    return ledger_.CheckInWindow(push);
  }
  void Record(const PushId& push, proto::Verdict verdict) {
    ledger_.Record(push, verdict);
  }
  void AckThrough(const WorkerLife& from, PushSequence sequence) {
    ledger_.AckThrough(from, sequence);
  }
  void Forget(const WorkerLife& from) { ledger_.Forget(from); }
  size_t size() const { return ledger_.size(); }

  // [P1] That the push, if it changes anything, is held wherever it has to be.
  absl::Status CheckHeld(const proto::ContributeRequest& request,
                         const PushId& push) const;
  // [P3] That a push which is told as spent was applied by every shard.
  absl::Status CheckSpent(const proto::SpentTicket& spent,
                          const PushId& push) const;
  // [P2] These are the scalars of the ticket that the push holds.
  uint64_t ReceiptOfTicket(const PushId& push,
                           const Receipts::Scalars& scalars) const {
    return receipts_->OfTicket(push, scalars);
  }

 private:
  Ledger ledger_;
  std::optional<Receipts> receipts_;
};

// 1 where the worker did not say.
float ClipFactorOf(const proto::ContributeRequest& request);

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_VERDICTS_H_
