#include "tests/simulation/scheduler.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace holdfast {

void Scheduler::After(absl::Duration delay, std::function<void()> event) {
  events_.push_back({now_ + delay, order_++, std::move(event)});
  std::push_heap(events_.begin(), events_.end());
}

void Scheduler::Soon(std::function<void()> event) {
  const uint64_t scale = Random(10) == 0 ? 3'000'000 : 3'000;
  After(absl::Microseconds(1 + Random(scale)), std::move(event));
}

bool Scheduler::RunOne() {
  if (events_.empty()) return false;
  std::pop_heap(events_.begin(), events_.end());
  const Event event = std::move(events_.back());
  events_.pop_back();
  now_ = event.at;
  event.run();
  return true;
}

bool Scheduler::Event::operator<(const Event& other) const {
  return std::tie(at, order) > std::tie(other.at, other.order);
}

}  // namespace holdfast
