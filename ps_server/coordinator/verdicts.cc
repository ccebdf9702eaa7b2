// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/verdicts.h"

#include "absl/strings/str_cat.h"
#include "proto/cluster.pb.h"

namespace holdfast {

float ClipFactorOf(const proto::ContributeRequest& request) {
  return request.has_clip_factor() ? request.clip_factor() : 1.0f;
}

void Verdicts::Reset() {
  ledger_ = Ledger();
  receipts_.reset();
}

std::string Verdicts::MakeReceipts(const std::string& secret,
                                   Generation generation,
                                   const JobDeclaration& declared,
                                   uint32_t num_ps) {
  const std::string key = Receipts::MakeKey(secret, generation);
  const google::protobuf::RepeatedPtrField<proto::Slice> slices(
      declared.slices().begin(), declared.slices().end());
  receipts_.emplace(key, generation, *declared, slices, num_ps);
  return key;
}

absl::Status Verdicts::CheckHeld(const proto::ContributeRequest& request,
                                 const PushId& push) const {
  if (request.examples() == 0 || ClipFactorOf(request) == 0) {
    return absl::OkStatus();
  }
  return receipts_->CheckHeld(push, GlobalStep(request.step()),
                              request.receipts());
}

absl::Status Verdicts::CheckSpent(const proto::SpentTicket& spent,
                                  const PushId& push) const {
  const absl::Status status = receipts_->CheckApplied(push, spent.receipts());
  if (status.ok()) return status;
  return absl::Status(
      status.code(), absl::StrCat(status.message(),
                                  "; it is reported as spent, so its worker is "
                                  "fenced"));
}

}  // namespace holdfast
