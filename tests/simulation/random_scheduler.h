// SPDX-License-Identifier: Apache-2.0

// A scheduler whose choices are drawn from a seed.
#ifndef HOLDFAST_TESTS_SIMULATION_RANDOM_SCHEDULER_H_
#define HOLDFAST_TESTS_SIMULATION_RANDOM_SCHEDULER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "tests/world/message.h"
#include "tests/world/scheduler.h"
#include "tests/world/world.h"

namespace holdfast {

// Faults per 1000 messages.
struct Faults {
  int lost = 0;
  int repeated = 0;
  // Per 1000 messages that must be lent; the link may be lost along with the
  // message.
  int not_lent = 0;
};

// Messages arrive after delays that are mostly short and sometimes so long that
// a whole step overtakes the message. A request may be lost before it arrives,
// or its answer may be lost; in either case the caller gets UNAVAILABLE some
// time later. A repeated request arrives again, sometimes much later. A message
// in flight when a process dies may arrive in its next life.
//
// Requests to the disk take some time, and so do their answers; each lane of a
// process has one request under way at a time.
class RandomScheduler : public sim::Scheduler {
 public:
  struct Options {
    uint64_t seed = 1;
    Faults faults;
    // Calls of ps to the coordinator are neither late nor lost. Needed where
    // nothing is saved, because there the loss of a ps ends the job.
    bool keeps_ps = false;
    // Failures per 1000 calls to the disk.
    int disk_failing = 0;
    // The minimum time between two failures of the disk.
    absl::Duration between_disk_faults;
    // The longest time that writing a share takes.
    absl::Duration longest_write = absl::Seconds(4);
  };

  explicit RandomScheduler(const Options& options)
      : options_(options), random_(options.seed) {}

  // To be called before anything happens in the world.
  void Attach(sim::World* world,
              std::function<void(sim::Process, bool for_good)> on_exit,
              std::function<void()> on_stopped);
  // Runs `event` after `delay`.
  void After(absl::Duration delay, std::function<void()> event);
  // Runs the next event.
  void RunOne();

  // sim::Scheduler:
  void OnSent(sim::Message* message, sim::OpenCall* call) override;
  void OnTimer(absl::Time due) override;
  uint64_t Random(uint64_t below) override { return random_() % below; }
  sim::DiskFault NextDiskFault(bool is_read) override;
  bool Lends(sim::Node client) override;
  void Hurry(sim::Node node, int lane) override;
  bool Breaks(const sim::Message& message) override;
  void OnCrash(sim::Process process) override;
  void OnExit(sim::Process process, bool for_good) override {
    on_exit_(process, for_good);
  }
  void OnStopped() override { on_stopped_(); }

 private:
  struct Event {
    absl::Time at;
    uint64_t order;
    std::function<void()> run;
    bool operator<(const Event& other) const;
  };
  // The requests of one lane to the disk, of which the first is under way.
  struct Lane {
    // The serial number of the message that comes next: the first request, or
    // its answer.
    uint64_t next = 0;
    std::deque<uint64_t> requests;
    // Incremented when `next` is planned anew, which cancels the event planned
    // before.
    uint64_t number = 0;
    bool hurries = false;
  };
  using LaneName = std::pair<sim::Node, int>;

  void At(absl::Time at, std::function<void()> event);
  absl::Duration Delay();
  void DeliverAfter(absl::Duration delay, uint64_t serial);
  static int LaneOf(const sim::Message& message);
  absl::Duration LongestOf(int lane) const;
  void Plan(const LaneName& name, absl::Duration longest);

  const Options options_;
  sim::World* world_ = nullptr;
  std::function<void(sim::Process, bool)> on_exit_;
  std::function<void()> on_stopped_;
  std::mt19937_64 random_;
  uint64_t order_ = 0;
  // A heap with the next event on top.
  std::vector<Event> events_;
  std::map<LaneName, Lane> lanes_;
  // By client: the time until which it has no link.
  std::map<sim::Node, absl::Time> link_lost_until_;
  absl::Time last_disk_fault_ = absl::InfinitePast();
};

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_SIMULATION_RANDOM_SCHEDULER_H_
