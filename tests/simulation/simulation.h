// SPDX-License-Identifier: Apache-2.0

// Subjects a simulated cluster to random trouble, drawn from a seed.
#ifndef HOLDFAST_TESTS_SIMULATION_SIMULATION_H_
#define HOLDFAST_TESTS_SIMULATION_SIMULATION_H_

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "absl/time/time.h"
#include "proto/shard.pb.h"
#include "tests/simulation/random_scheduler.h"
#include "tests/world/stop_command.h"
#include "tests/world/worker.h"
#include "tests/world/world.h"

namespace holdfast {

// What may happen in a schedule apart from the faults of messages.
struct Troubles {
  // The maximum number of mishaps.
  int mishaps = 3;
  // Checkpoints may be damaged.
  bool damage = false;
  // When all processes are restarted, the number of ps may change.
  bool resize = false;
  // Writing a share takes up to 40 min, longer than all timeouts, but makes
  // progress all the time.
  bool slow_disk = false;
  // Mishaps happen to workers, in the middle of training: they die, fall silent
  // or leave.
  bool of_workers = false;
  // The job has half of its steps at first. It gets the other half when it is
  // done with them, or when all processes are restarted.
  bool edited = false;
};

// Consecutive seeds.
struct Schedules {
  uint64_t first = 1;
  uint64_t count = 1;
};

// `count` schedules; or the single one whose seed is HOLDFAST_SIMULATION_SEED;
// or as many as HOLDFAST_SIMULATION_SCHEDULES says, which .ci/run sets to more
// than the suite runs.
Schedules SchedulesToRun(uint64_t count);

// One schedule of a job: brings trouble to a cluster, and restarts the
// processes that died.
class Simulation : public sim::Observer {
 public:
  // `present` of the `num_workers` workers are there at the beginning, and an
  // evaluator if the job has one. Workers are scripted, or the production
  // client if the job lends.
  Simulation(const sim::Job& job, const RandomScheduler::Options& options,
             const Troubles& troubles, uint32_t num_workers, uint32_t present);

  // Runs until the job has ended and all processes know, and a while longer.
  // `after_each` is called after each event.
  void Run(const std::function<void()>& after_each = [] {});

  sim::World& world() { return world_; }
  RandomScheduler& scheduler() { return scheduler_; }
  // The number of processes that were fenced.
  int num_shut_out() const { return num_shut_out_; }
  // The number of times that an operator has stopped the job.
  int num_stopped() const { return num_stopped_; }
  void OnSent(sim::Node from, sim::Node to,
              const google::protobuf::Message& request) override;

 private:
  enum class State { kComing, kThere, kGone, kLeft };
  struct Seat {
    sim::Process process = -1;
    State state = State::kGone;
    bool silent = false;
  };

  bool HasEnded() const;
  absl::Duration Within(absl::Duration longest) {
    return scheduler_.RandomDuration(longest);
  }
  void OnExit(sim::Process process, bool for_good);
  void Bring(uint32_t index, absl::Duration longest);
  void Die(uint32_t index);
  void FallSilent(uint32_t index, absl::Duration longest);
  void LookAfterWorkers();
  void RestartPs(uint32_t ps, absl::Duration longest = absl::Seconds(10));
  void StopPs(uint32_t ps);
  void RepeatRestore(uint32_t ps);
  void StopAll();
  void DamageOne();
  // All processes have exited in order, and are started again.
  void OnStopped();
  void BeginAgain();
  void AskForCheckpoint();
  bool IsTimeToStrike();
  void Strike();
  void StrikeWorker();

  const Troubles troubles_;
  RandomScheduler scheduler_;
  sim::World world_;
  // The number of steps in the end, after an edit of the job.
  const uint64_t steps_;
  bool edited_ = false;
  int left_;
  int num_shut_out_ = 0;
  int num_stopped_ = 0;
  sim::StopCommand stop_{&world_};
  // The process that came last, by index of the worker; the evaluator comes
  // after the workers.
  std::vector<Seat> seats_;
  std::set<sim::Process> leaving_;
  // The last Restore of each ps.
  std::map<uint32_t, proto::RestoreRequest> last_restores_;
};

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_SIMULATION_SIMULATION_H_
