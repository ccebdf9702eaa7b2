// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/recent_rates.h"

namespace holdfast {

void RecentRates::Begin(absl::Time now, const Position& position) {
  Reset();
  samples_.push_back({now, position});
}

void RecentRates::Look(absl::Time now, const Position& position) {
  if (samples_.empty() || ended_ || now - samples_.back().at < kEvery) return;
  samples_.push_back({now, position});
  while (now - samples_[1].at >= kWindow) samples_.pop_front();
}

void RecentRates::End(absl::Time now, const Position& position) {
  last_ = At(now, position);
  ended_ = true;
}

void RecentRates::Reset() {
  samples_.clear();
  ended_ = false;
  last_ = Rates();
}

RecentRates::Rates RecentRates::At(absl::Time now,
                                   const Position& position) const {
  if (ended_) return last_;
  if (samples_.empty()) return Rates();
  const Sample& from = samples_.front();
  const double seconds = absl::ToDoubleSeconds(now - from.at);
  if (seconds <= 0) return Rates();
  const auto per_second = [&](uint64_t to, uint64_t since) {
    return to > since ? static_cast<double>(to - since) / seconds : 0;
  };
  return {per_second(position.steps, from.position.steps),
          per_second(position.examples, from.position.examples)};
}

}  // namespace holdfast
