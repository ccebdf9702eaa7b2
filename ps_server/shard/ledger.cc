#include "ps_server/shard/ledger.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/rpc_limits.h"

namespace holdfast {

void Ledger::AckThrough(const WorkerLife& from, PushSequence sequence) {
  if (sequence == PushSequence(0)) return;
  Life& life = lives_[from];
  life.acked_through = std::max(life.acked_through, sequence);
  life.verdicts.erase(life.verdicts.begin(),
                      life.verdicts.upper_bound(life.acked_through));
}

std::optional<proto::Verdict> Ledger::Find(const PushId& push) const {
  const auto life = lives_.find(push.from);
  if (life == lives_.end()) return std::nullopt;
  if (push.sequence <= life->second.acked_through) return proto::STALE;
  const auto verdict = life->second.verdicts.find(push.sequence);
  if (verdict == life->second.verdicts.end()) return std::nullopt;
  return verdict->second;
}

absl::Status Ledger::CheckInWindow(const PushId& push) const {
  const auto life = lives_.find(push.from);
  const uint64_t mark =
      life == lives_.end() ? 0 : life->second.acked_through.value();
  if (push.sequence.value() > mark &&
      push.sequence.value() - mark <= kMaxUnacknowledgedPushes) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      push.ToString(), " is more than ", kMaxUnacknowledgedPushes,
      " above acked_through, ", mark, ": acknowledge verdicts first"));
}

size_t Ledger::size() const {
  size_t size = 0;
  for (const auto& [from, life] : lives_) size += life.verdicts.size();
  return size;
}

void Ledger::Record(const PushId& push, proto::Verdict verdict) {
  Life& life = lives_[push.from];
  if (push.sequence > life.acked_through) {
    life.verdicts.emplace(push.sequence, verdict);
    if (life.verdicts.size() > kMaxUnacknowledgedPushes) {
      AckThrough(push.from, life.verdicts.begin()->first);
    }
  }
}

}  // namespace holdfast
