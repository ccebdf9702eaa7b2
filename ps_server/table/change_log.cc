// SPDX-License-Identifier: Apache-2.0
#include "ps_server/table/change_log.h"

#include <algorithm>
#include <utility>

namespace holdfast {

void ChangeLog::Begin(GlobalStep version) {
  begun_ = true;
  since_ = version;
  open_since_ = version;
  ended_.clear();
  open_ = std::make_shared<Period>();
}

void ChangeLog::Pause() {
  ended_.clear();
  open_.reset();
}

std::optional<ChangeLog::Periods> ChangeLog::Since(GlobalStep since,
                                                   GlobalStep version) {
  if (!begun_) return std::nullopt;
  if (open_ == nullptr) {
    Begin(version);
    return std::nullopt;
  }
  open_->end_ = version;
  open_since_ = version;
  ended_.push_back(std::exchange(open_, std::make_shared<Period>()));
  if (since < since_ || since > version) return std::nullopt;
  const auto first =
      std::find_if(ended_.begin(), ended_.end(),
                   [&](const auto& period) { return period->end_ > since; });
  return Periods(first, ended_.end());
}

void ChangeLog::Forget(GlobalStep version) {
  if (open_ == nullptr || version <= since_) return;
  since_ = version;
  ended_.erase(std::remove_if(
                   ended_.begin(), ended_.end(),
                   [&](const auto& period) { return period->end_ <= version; }),
               ended_.end());
}

int64_t ChangeLog::num_ids() const {
  size_t ids = 0;
  const auto add = [&](const Period& period) {
    for (const auto& kinds : period.ids_) {
      for (const auto& kind : kinds) ids += kind.size();
    }
  };
  for (const auto& period : ended_) add(*period);
  if (open_ != nullptr) add(*open_);
  return static_cast<int64_t>(ids);
}

}  // namespace holdfast
