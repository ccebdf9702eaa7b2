// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/events.h"

#include <algorithm>
#include <utility>

namespace holdfast {

void EventLog::TakeUp(const proto::History& history) {
  for (const proto::Event& event : history.events()) {
    // A file that breaks the order was not written by this class.
    if (event.number() <= last_number_) continue;
    // After a gap, the earlier events cannot be found by number.
    if (event.number() != last_number_ + 1) events_.clear();
    last_number_ = event.number();
    events_.push_back(event);
  }
  while (events_.size() > kMostEvents) events_.pop_front();
}

void EventLog::Add(proto::Event event) {
  event.set_number(++last_number_);
  events_.push_back(std::move(event));
  if (events_.size() > kMostEvents) events_.pop_front();
}

proto::GetEventsResponse EventLog::After(uint64_t number) const {
  proto::GetEventsResponse response;
  // Numbers are consecutive, so an event's position follows from its number.
  const uint64_t missing = last_number_ - std::min(number, last_number_);
  const size_t count = std::min<uint64_t>(missing, events_.size());
  for (size_t i = events_.size() - count; i < events_.size(); ++i) {
    *response.add_events() = events_[i];
  }
  return response;
}

void EventLog::AddTo(proto::History* history) const {
  history->mutable_events()->Assign(events_.begin(), events_.end());
}

}  // namespace holdfast
