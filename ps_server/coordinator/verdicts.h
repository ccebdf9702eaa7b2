// SPDX-License-Identifier: Apache-2.0
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

// The coordinator's verdicts on the pushes of a generation, kept for as long as
// their workers may ask; and the receipts by which a worker must prove what it
// claims about a push (docs/protocol/life_of_a_step.md, Receipts).
//
// Thread-compatible.
// Invariant: the verdict on a push never changes.
class Verdicts {
 public:
  // Called when a generation is over. Forgets all verdicts and the key of
  // receipts, so that no receipt is valid.
  void Reset();
  // Makes the key of the receipts of `generation`, and returns it, to be sent
  // to the shards when they are restored.
  std::string MakeReceipts(const std::string& secret, Generation generation,
                           const JobDeclaration& declared, uint32_t num_ps);

  // The methods of Ledger.
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

  // [P1] Checks that the push, if it changes anything, is held by every shard
  // that must hold it.
  absl::Status CheckHeld(const proto::ContributeRequest& request,
                         const PushId& push) const;
  // [P3] Checks that every shard has applied the push that is reported as
  // spent.
  absl::Status CheckSpent(const proto::SpentTicket& spent,
                          const PushId& push) const;
  // [P2] Returns a receipt for the statement that `scalars` are those of the
  // ticket that the push holds.
  uint64_t ReceiptOfTicket(const PushId& push,
                           const Receipts::Scalars& scalars) const {
    return receipts_->OfTicket(push, scalars);
  }

 private:
  Ledger ledger_;
  std::optional<Receipts> receipts_;
};

// The request's clip factor; 1 if the worker did not set it.
float ClipFactorOf(const proto::ContributeRequest& request);

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_VERDICTS_H_
