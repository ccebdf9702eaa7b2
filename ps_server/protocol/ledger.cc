// SPDX-License-Identifier: Apache-2.0
#include "ps_server/protocol/ledger.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/rpc/rpc_limits.h"

namespace holdfast {

void Ledger::AckThrough(const WorkerLife& from, PushSequence sequence) {
  if (sequence == PushSequence(0)) return;
  Life& life = lives_[from];
  life.acked_through = std::max(life.acked_through, sequence);
  life.decisions.erase(life.decisions.begin(),
                       life.decisions.upper_bound(life.acked_through));
}

std::optional<proto::Verdict> Ledger::Find(const PushId& push) const {
  const auto life = lives_.find(push.from);
  if (life == lives_.end()) return std::nullopt;
  if (push.sequence <= life->second.acked_through) return proto::STALE;
  const auto found = life->second.decisions.find(push.sequence);
  if (found == life->second.decisions.end()) return std::nullopt;
  return found->second.verdict;
}

const Decision* Ledger::FindDecision(const PushId& push) const {
  const std::map<PushSequence, Decision>& kept = Kept(push.from);
  const auto found = kept.find(push.sequence);
  return found == kept.end() ? nullptr : &found->second;
}

PushSequence Ledger::DecidedThrough(const WorkerLife& from) const {
  const auto life = lives_.find(from);
  if (life == lives_.end()) return PushSequence(0);
  // Decisions that are kept are above the mark.
  return life->second.decisions.empty()
             ? life->second.acked_through
             : life->second.decisions.rbegin()->first;
}

std::vector<WorkerLife> Ledger::Lives() const {
  std::vector<WorkerLife> lives;
  for (const auto& [from, life] : lives_) lives.push_back(from);
  return lives;
}

const std::map<PushSequence, Decision>& Ledger::Kept(
    const WorkerLife& from) const {
  static const auto* const kNone = new std::map<PushSequence, Decision>;
  const auto life = lives_.find(from);
  return life == lives_.end() ? *kNone : life->second.decisions;
}

absl::Status Ledger::CheckInWindow(const PushId& push) const {
  const auto life = lives_.find(push.from);
  const uint64_t mark =
      life == lives_.end() ? 0 : life->second.acked_through.value();
  if (push.sequence.value() > mark &&
      push.sequence.value() - mark <= kMaxUnacknowledgedPushes) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      push.ToString(), " is more than ", kMaxUnacknowledgedPushes,
      " above acked_through, ", mark, ": expected a sequence from ", mark + 1,
      " to ", mark + kMaxUnacknowledgedPushes,
      ", or first the acknowledgment of earlier verdicts"));
}

size_t Ledger::size() const {
  size_t size = 0;
  for (const auto& [from, life] : lives_) size += life.decisions.size();
  return size;
}

void Ledger::Record(const PushId& push, const Decision& decision) {
  Life& life = lives_[push.from];
  if (push.sequence > life.acked_through) {
    life.decisions.emplace(push.sequence, decision);
    if (life.decisions.size() > kMaxUnacknowledgedPushes) {
      AckThrough(push.from, life.decisions.begin()->first);
    }
  }
}

}  // namespace holdfast
