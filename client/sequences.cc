// SPDX-License-Identifier: Apache-2.0
#include "client/sequences.h"

#include <algorithm>

namespace holdfast::client {

PushSequence Sequences::Take(std::optional<GlobalStep> step) {
  entries_.push_back({step, /*holders=*/1, /*settled=*/false, {}});
  return PushSequence(acked_through_.value() + entries_.size());
}

Sequences::Entry* Sequences::Find(PushSequence sequence) {
  if (sequence <= acked_through_) return nullptr;
  const uint64_t index = sequence.value() - acked_through_.value() - 1;
  return index < entries_.size() ? &entries_[index] : nullptr;
}

void Sequences::Hold(PushSequence sequence, std::optional<GlobalStep> step) {
  Entry* entry = Find(sequence);
  if (entry == nullptr) return;
  ++entry->holders;
  entry->step = step;
}

void Sequences::Release(PushSequence sequence) {
  Entry* entry = Find(sequence);
  if (entry == nullptr) return;
  --entry->holders;
  Advance();
}

void Sequences::KeepReceipt(PushSequence sequence, uint32_t ps,
                            uint64_t receipt) {
  Entry* entry = Find(sequence);
  if (entry == nullptr) return;
  if (entry->receipts.size() <= ps) entry->receipts.resize(ps + 1);
  entry->receipts[ps] = receipt;
}

std::vector<uint64_t> Sequences::Receipts(PushSequence sequence) const {
  if (sequence <= acked_through_) return {};
  const uint64_t index = sequence.value() - acked_through_.value() - 1;
  return index < entries_.size() ? entries_[index].receipts
                                 : std::vector<uint64_t>();
}

void Sequences::Settle(PushSequence sequence) {
  Entry* entry = Find(sequence);
  if (entry == nullptr) return;
  entry->settled = true;
  Advance();
}

void Sequences::Reached(GlobalStep version) {
  reached_ = std::max(reached_, version);
  Advance();
}

void Sequences::Advance() {
  const auto over = [this](const Entry& entry) {
    return entry.settled || (entry.holders <= 0 && entry.step.has_value() &&
                             *entry.step < reached_);
  };
  while (!entries_.empty() && over(entries_.front())) {
    entries_.pop_front();
    acked_through_ = acked_through_.next();
  }
}

}  // namespace holdfast::client
