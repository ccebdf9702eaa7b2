// What befalls a cluster in a schedule, by its seed.
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

// What may happen in a schedule beside what messages suffer.
struct Troubles {
  // At most so many.
  int mishaps = 3;
  // Checkpoints are found damaged.
  bool damage = false;
  // When all is started anew, it may be with another number of ps.
  bool resize = false;
  // A share takes up to 40 min, beyond all timeouts, but moves all the time.
  bool slow_disk = false;
  // It is workers who die, fall silent or leave, in the middle of training.
  bool of_workers = false;
  // The job has half of its steps at first. When it is done with them, or when
  // all is started anew, it has all.
  bool edited = false;
};

// Seeds, one after the other.
struct Schedules {
  uint64_t first = 1;
  uint64_t count = 1;
};

// `count` of them; or the one that HOLDFAST_SIMULATION_SEED names, or as many
// as HOLDFAST_SIMULATION_SCHEDULES says (.ci/run: more than the suite).
Schedules SchedulesToRun(uint64_t count);

// One schedule of a job: brings trouble to a cluster, and whoever died back
// into it.
class Simulation : public sim::Observer {
 public:
  // `present` of `num_workers` are there at the beginning, and an evaluator,
  // where the job has one. Workers follow a script; where the job lends they
  // are clients.
  Simulation(const sim::Job& job, const RandomScheduler::Options& options,
             const Troubles& troubles, uint32_t num_workers, uint32_t present);

  // Until the job has ended, and everybody knows; and a while longer.
  // `after_each` is called after each event.
  void Run(const std::function<void()>& after_each = [] {});

  sim::World& world() { return world_; }
  RandomScheduler& scheduler() { return scheduler_; }
  // Processes that were shut out.
  int num_shut_out() const { return num_shut_out_; }
  // How often an operator has stopped the job.
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
  // All have ended in order, and come back.
  void OnStopped();
  void BeginAgain();
  void AskForCheckpoint();
  bool IsTimeToStrike();
  void Strike();
  void StrikeWorker();

  const Troubles troubles_;
  RandomScheduler scheduler_;
  sim::World world_;
  // Of the job as it is in the end, where it is edited meanwhile.
  const uint64_t steps_;
  bool edited_ = false;
  int left_;
  int num_shut_out_ = 0;
  int num_stopped_ = 0;
  sim::StopCommand stop_{&world_};
  // By index of the worker, and the evaluator's behind them: the process that
  // came last.
  std::vector<Seat> seats_;
  std::set<sim::Process> leaving_;
  // By ps.
  std::map<uint32_t, proto::RestoreRequest> last_restores_;
};

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_SIMULATION_SIMULATION_H_
