// A scheduler that is random by a seed.
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

// Per message, of 1000.
struct Faults {
  int lost = 0;
  int repeated = 0;
  // Of those that must be lent; the link may be lost with one.
  int not_lent = 0;
};

// Has messages arrive after delays that are mostly short and sometimes long
// enough to be overtaken by a whole step. A request may be lost before it
// arrives, or its answer after; either way the caller hears UNAVAILABLE a while
// later. A repeated request arrives again later, at times much later. What is
// on its way when a process dies may arrive at its next life.
//
// What is asked of the disk takes a while, and its answer another; one request
// of a process and lane is under way at a time.
class RandomScheduler : public sim::Scheduler {
 public:
  struct Options {
    uint64_t seed = 1;
    Faults faults;
    // Calls of ps to the coordinator are neither late nor lost: where nothing
    // is saved, the loss of a ps is the end.
    bool keeps_ps = false;
    // Of 1000 calls to the disk.
    int disk_failing = 0;
    // No two fail within so long.
    absl::Duration between_disk_faults;
    // For a share to be written, at most.
    absl::Duration longest_write = absl::Seconds(4);
  };

  explicit RandomScheduler(const Options& options)
      : options_(options), random_(options.seed) {}

  // Before anything happens in the world.
  void Attach(sim::World* world,
              std::function<void(sim::Process, bool for_good)> on_exit,
              std::function<void()> on_stopped);
  // Runs `event` after `delay`.
  void After(absl::Duration delay, std::function<void()> event);
  // What comes next.
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
  // Requests of one lane to the disk, of which the first is under way.
  struct Lane {
    // What the first one is at: it, or its answer.
    uint64_t next = 0;
    std::deque<uint64_t> requests;
    // Of the events that have been planned for `next`.
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
  // A heap, the next one on top.
  std::vector<Event> events_;
  std::map<LaneName, Lane> lanes_;
  // By client, until when there is none.
  std::map<sim::Node, absl::Time> link_lost_until_;
  absl::Time last_disk_fault_ = absl::InfinitePast();
};

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_SIMULATION_RANDOM_SCHEDULER_H_
