// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_COORDINATOR_EVENTS_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_EVENTS_H_

#include <cstddef>
#include <cstdint>
#include <deque>

#include "proto/checkpoint.pb.h"
#include "proto/coordinator.pb.h"

namespace holdfast {

// The newest events of the job, for users, numbered over the job's whole life.
//
// Thread-compatible.
// Invariant: the numbers of the events kept are consecutive.
class EventLog {
 public:
  // The maximum number of events kept. Older ones are dropped.
  static constexpr size_t kMostEvents = 1000;

  // Continues from the history found on disk. Must be called before the first
  // Add.
  void TakeUp(const proto::History& history);
  // Keeps `event` under the next number, whatever number it carries.
  void Add(proto::Event event);

  // The events that are kept, the oldest first.
  const std::deque<proto::Event>& events() const { return events_; }
  // The number of the newest event; 0 before the first.
  uint64_t last_number() const { return last_number_; }
  // The events after `number` that are still kept.
  proto::GetEventsResponse After(uint64_t number) const;
  void AddTo(proto::History* history) const;

 private:
  std::deque<proto::Event> events_;
  uint64_t last_number_ = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_EVENTS_H_
