// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/random_scheduler.h"

#include <algorithm>
#include <tuple>

#include "absl/status/status.h"
#include "glog/logging.h"

namespace holdfast {
namespace {

// The time after which a caller gives up a call that is lost.
constexpr absl::Duration kNoticed = absl::Seconds(2);
constexpr absl::Duration kTick = absl::Milliseconds(100);
constexpr absl::Duration kJournalWrite = absl::Milliseconds(100);
// The time within which the disk abandons requests that are no longer wanted.
constexpr absl::Duration kSoon = absl::Milliseconds(100);

}  // namespace

bool RandomScheduler::Event::operator<(const Event& other) const {
  return std::tie(at, order) > std::tie(other.at, other.order);
}

void RandomScheduler::Attach(
    sim::World* world, std::function<void(sim::Process, bool for_good)> on_exit,
    std::function<void()> on_stopped) {
  world_ = world;
  on_exit_ = std::move(on_exit);
  on_stopped_ = std::move(on_stopped);
  const auto tick = [this](auto self) -> void {
    world_->Tick();
    After(kTick, [self] { self(self); });
  };
  After(kTick, [tick] { tick(tick); });
}

void RandomScheduler::At(absl::Time at, std::function<void()> event) {
  events_.push_back({at, order_++, std::move(event)});
  std::push_heap(events_.begin(), events_.end());
}

void RandomScheduler::After(absl::Duration delay, std::function<void()> event) {
  At(world_->Now() + delay, std::move(event));
}

void RandomScheduler::RunOne() {
  CHECK(!events_.empty());
  std::pop_heap(events_.begin(), events_.end());
  const Event event = std::move(events_.back());
  events_.pop_back();
  world_->SetTime(event.at);
  world_->NoteLast(sim::World::kNobody);
  event.run();
  world_->AfterEvent();
}

void RandomScheduler::OnTimer(absl::Time due) {
  At(due, [this] { world_->RunTimers(); });
}

// ---- The network ----

absl::Duration RandomScheduler::Delay() {
  const uint64_t scale = Random(10) == 0 ? 3'000'000 : 3'000;
  return absl::Microseconds(1 + Random(scale));
}

void RandomScheduler::DeliverAfter(absl::Duration delay, uint64_t serial) {
  After(delay, [this, serial] {
    if (const sim::Message* message = world_->Find(serial)) {
      world_->Deliver(message);
    }
  });
}

void RandomScheduler::OnSent(sim::Message* message, sim::OpenCall* call) {
  const uint64_t serial = message->serial;
  if (message->to == sim::kDisk) {
    const LaneName name = {message->from, LaneOf(*message)};
    Lane& lane = lanes_[name];
    lane.requests.push_back(serial);
    if (lane.requests.size() > 1) return;
    lane.next = serial;
    return Plan(name, LongestOf(name.second));
  }
  if (message->from == sim::kDisk) {
    const LaneName name = {message->to, LaneOf(*message)};
    lanes_[name].next = serial;
    return Plan(name, lanes_[name].hurries ? kSoon : LongestOf(name.second));
  }
  const auto is_ps = [](sim::Node node) {
    return node > sim::ShardNode(0) && node < sim::kDisk;
  };
  if (options_.keeps_ps &&
      (*message->rpc == "Register" || *message->rpc == "RenewLease") &&
      (is_ps(message->from) || is_ps(message->to))) {
    return DeliverAfter(absl::ZeroDuration(), serial);
  }
  // Calls between an exchange and the machines of its process are delivered at
  // once.
  if (sim::World::IsLocal(message->from, message->to) &&
      (message->from == sim::kExchanges || message->to == sim::kExchanges)) {
    return DeliverAfter(absl::ZeroDuration(), serial);
  }
  if (call == nullptr) return DeliverAfter(Delay(), serial);
  const auto give_up = [this, serial](const char* why) {
    After(kNoticed, [this, serial, why] {
      if (const sim::Message* lost = world_->Find(serial)) {
        world_->Fail(lost, absl::UnavailableError(why));
      }
    });
  };
  if (Happens(options_.faults.lost)) return give_up("the request was lost");
  if (Happens(options_.faults.lost)) {
    DeliverAfter(Delay(), world_->Repeat(*message)->serial);
    return give_up("the answer was lost");
  }
  DeliverAfter(Delay(), serial);
  if (Happens(options_.faults.repeated)) {
    const absl::Duration after = Random(4) == 0
                                     ? RandomDuration(absl::Seconds(20))
                                     : absl::ZeroDuration();
    DeliverAfter(after + Delay(), world_->Repeat(*message)->serial);
  }
}

bool RandomScheduler::Lends(sim::Node client) {
  absl::Time& lost_until = link_lost_until_[client];
  if (world_->Now() < lost_until) return false;
  if (!Happens(options_.faults.not_lent)) return true;
  if (Random(2) == 0) {
    lost_until = world_->Now() + RandomDuration(absl::Seconds(2));
  }
  return false;
}

bool RandomScheduler::Breaks(const sim::Message& message) {
  return message.from == sim::kDisk || message.to == sim::kDisk ||
         Random(2) == 0;
}

// ---- The disk ----

sim::DiskFault RandomScheduler::NextDiskFault(bool is_read) {
  if (!Happens(options_.disk_failing) ||
      world_->Now() - last_disk_fault_ < options_.between_disk_faults) {
    return sim::DiskFault::kNone;
  }
  last_disk_fault_ = world_->Now();
  return is_read || Random(2) == 0 ? sim::DiskFault::kBeforeItIsDone
                                   : sim::DiskFault::kAfterItWasDone;
}

int RandomScheduler::LaneOf(const sim::Message& message) {
  if (*message.rpc == "SaveShare") return sim::Disk::kSaveLane;
  if (*message.rpc == "LoadShare") return sim::Disk::kLoadLane;
  return sim::Disk::kArchiveLane;
}

absl::Duration RandomScheduler::LongestOf(int lane) const {
  return lane == sim::Disk::kArchiveLane ? kJournalWrite
                                         : options_.longest_write / 2;
}

void RandomScheduler::Plan(const LaneName& name, absl::Duration longest) {
  const uint64_t number = ++lanes_[name].number;
  After(RandomDuration(longest), [this, name, number] {
    const auto found = lanes_.find(name);
    if (found == lanes_.end() || found->second.number != number) return;
    const sim::Message* const message = world_->Find(found->second.next);
    CHECK(message != nullptr);
    if (message->is_request) return world_->Deliver(message);  // answered
    Lane& lane = found->second;
    lane.requests.pop_front();
    lane.hurries = false;
    if (!lane.requests.empty()) {
      lane.next = lane.requests.front();
      Plan(name, LongestOf(name.second));
    }
    world_->Deliver(message);
  });
}

void RandomScheduler::Hurry(sim::Node node, int lane) {
  const auto found = lanes_.find({node, lane});
  if (found == lanes_.end() || found->second.requests.empty()) return;
  found->second.hurries = true;
  Plan({node, lane}, kSoon);
}

void RandomScheduler::OnCrash(sim::Process process) {
  for (const sim::Node node : sim::World::NodesOf(process)) {
    for (int lane = 0; lane < sim::Disk::kNumLanes; ++lane) {
      // The number is not reset.
      if (const auto found = lanes_.find({node, lane}); found != lanes_.end()) {
        ++found->second.number;
        found->second.requests.clear();
        found->second.hurries = false;
      }
    }
  }
}

}  // namespace holdfast
