#include "ps_server/table/removal_log.h"

#include <algorithm>
#include <utility>

namespace holdfast {

const RemovalLog::Ids* RemovalLog::Period::Find(uint32_t bucket) const {
  const auto& by_bucket = stripes[StripeOfBucket(bucket)].by_bucket;
  const auto found = by_bucket.find(bucket);
  return found == by_bucket.end() ? nullptr : &found->second;
}

void RemovalLog::Begin(GlobalStep version) {
  begin_ = version;
  ended_.clear();
  open_ = std::make_shared<Period>();
}

void RemovalLog::Add(uint32_t bucket, std::vector<uint64_t> Ids::*kind,
                     uint64_t id) {
  Period::Stripe& stripe = open_->stripes[StripeOfBucket(bucket)];
  (stripe.by_bucket[bucket].*kind).push_back(id);
  ++stripe.num_ids;
}

std::optional<RemovalLog::Periods> RemovalLog::Since(GlobalStep since,
                                                     GlobalStep version) {
  if (!keeps()) return std::nullopt;
  open_->end = version;
  ended_.push_back(std::exchange(open_, std::make_shared<Period>()));
  if (since < begin_) return std::nullopt;
  const auto first =
      std::find_if(ended_.begin(), ended_.end(),
                   [&](const auto& period) { return period->end > since; });
  return Periods(first, ended_.end());
}

void RemovalLog::Forget(GlobalStep version) {
  if (!keeps() || version <= begin_) return;
  begin_ = version;
  ended_.erase(std::remove_if(
                   ended_.begin(), ended_.end(),
                   [&](const auto& period) { return period->end <= version; }),
               ended_.end());
}

int64_t RemovalLog::num_ids() const {
  int64_t ids = 0;
  const auto add = [&](const Period& period) {
    for (const Period::Stripe& stripe : period.stripes) ids += stripe.num_ids;
  };
  for (const auto& period : ended_) add(*period);
  if (keeps()) add(*open_);
  return ids;
}

}  // namespace holdfast
