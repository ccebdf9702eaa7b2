// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/simulation.h"

#include <cstdlib>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "tests/world/client_worker.h"
#include "tests/world/evaluator.h"
#include "tests/world/set_command.h"

namespace holdfast {
namespace {

// The mean number of events between two mishaps: events of all kinds, ticks
// included; and for mishaps of workers, messages to workers.
constexpr uint64_t kEventsBetween = 250;
constexpr uint64_t kEventsOfWorkersBetween = 60;
// Longer than any message is in flight.
constexpr absl::Duration kQuiet = absl::Seconds(30);
// The time within which a job must end, whatever happens to it.
constexpr absl::Duration kLongest = absl::Hours(1);

sim::World::MakeWorker MakeProgram(const sim::Job& job, uint32_t num_workers) {
  const bool by_client = job.lends || job.computes_early || job.starts_again;
  return [make = by_client ? sim::MakeClientWorker : sim::MakeScriptedWorker,
          num_workers](sim::World* world, sim::Process process, uint32_t index,
                       uint64_t nonce) {
    if (index == num_workers) return sim::MakeEvaluator(world, process, nonce);
    return make(world, process, index, nonce);
  };
}

}  // namespace

Schedules SchedulesToRun(uint64_t count) {
  Schedules schedules = {1, count};
  if (const char* seed = std::getenv("HOLDFAST_SIMULATION_SEED")) {
    CHECK(absl::SimpleAtoi(seed, &schedules.first)) << seed;
    schedules.count = 1;
  } else if (const char* n = std::getenv("HOLDFAST_SIMULATION_SCHEDULES")) {
    CHECK(absl::SimpleAtoi(n, &schedules.count)) << n;
  }
  return schedules;
}

Simulation::Simulation(const sim::Job& job,
                       const RandomScheduler::Options& options,
                       const Troubles& troubles, uint32_t num_workers,
                       uint32_t present)
    : troubles_(troubles),
      scheduler_(options),
      world_(job, &scheduler_, MakeProgram(job, num_workers)),
      steps_(job.steps()),
      left_(troubles.of_workers ? troubles.mishaps
                                : scheduler_.Random(troubles.mishaps + 1)),
      seats_(num_workers + (job.has_evaluator() ? 1 : 0)) {
  scheduler_.Attach(
      &world_,
      [this](sim::Process process, bool for_good) {
        OnExit(process, for_good);
      },
      [this] { OnStopped(); });
  world_.AddObserver(this);
  if (troubles.edited) world_.SetSteps(steps_ / 2);
  if (troubles.damage) world_.disk().set_unreadable(100);
  for (uint32_t ps = 0; ps < job.num_ps; ++ps) world_.Start(ps);
  for (uint32_t i = 0; i < seats_.size(); ++i) {
    Bring(i, i < present ? absl::Seconds(1) : absl::Seconds(15));
  }
  LookAfterWorkers();
  if (job.changes_rate) sim::SetRate(&world_, 3);
}

void Simulation::Run(const std::function<void()>& after_each) {
  const absl::Time bound =
      world_.Now() + (troubles_.slow_disk ? 24 : 1) * kLongest;
  while (world_.violation().empty()) {
    if (HasEnded()) {
      if (!troubles_.edited || edited_) break;
      BeginAgain();
    }
    if (world_.Now() >= bound) {
      return world_.Violate(
          absl::StrCat("it hangs: ", world_.coordinator() == nullptr
                                         ? "no coordinator"
                                         : world_.Status().DebugString()));
    }
    scheduler_.RunOne();
    after_each();
    if (left_ > 0 && IsTimeToStrike()) {
      --left_;
      Strike();
    }
  }
  // Late messages arrive after the end, and dead processes are found to be
  // dead.
  left_ = 0;
  const absl::Time settled = world_.Now() + absl::Seconds(30);
  while (world_.Now() < settled && world_.violation().empty()) {
    scheduler_.RunOne();
  }
}

bool Simulation::HasEnded() const {
  if (world_.coordinator() == nullptr || !world_.coordinator()->finished()) {
    return false;
  }
  // A worker that asks to be admitted to a job that has FAILED is told so by
  // the refusal, and not expected back.
  const bool failed = world_.phase() == proto::FAILED;
  for (const Seat& seat : seats_) {
    if (seat.state == State::kLeft) continue;
    if (!failed || seat.state != State::kGone) return false;
  }
  return true;
}

void Simulation::OnSent(sim::Node from, sim::Node to,
                        const google::protobuf::Message& request) {
  if (const auto* restore = sim::As<proto::RestoreRequest>(request)) {
    last_restores_[to - sim::ShardNode(0)] = *restore;
  }
}

// ---- Workers ----

void Simulation::OnExit(sim::Process process, bool for_good) {
  if (process < sim::kFirstWorkerProcess) {
    const uint32_t ps = process;
    return scheduler_.After(absl::Seconds(1), [this, ps] {
      if (ps < world_.num_ps() && !world_.IsAlive(ps)) world_.Start(ps);
    });
  }
  if (!for_good && leaving_.count(process) == 0) ++num_shut_out_;
  Seat& seat = seats_[world_.WorkerIndex(process)];
  if (seat.process != process) return;
  // A worker that leaves a job that was stopped comes back.
  const bool has_left =
      for_good && (!world_.job().archive || world_.disk().journal().finished());
  seat.state = has_left ? State::kLeft : State::kGone;
}

void Simulation::Bring(uint32_t index, absl::Duration longest) {
  const sim::Process process = world_.AddWorker(index);
  seats_[index] = {process, State::kComing, false};
  scheduler_.After(Within(longest), [this, index, process] {
    Seat& seat = seats_[index];
    if (seat.process != process || seat.state != State::kComing) return;
    seat.state = State::kThere;
    world_.Start(process);
  });
}

void Simulation::Die(uint32_t index) {
  Seat& seat = seats_[index];
  if (seat.state == State::kLeft) return;
  if (seat.state == State::kThere) world_.Crash(seat.process);
  seat.state = State::kGone;
}

// The worker hears nothing for a while, and then everything at once.
void Simulation::FallSilent(uint32_t index, absl::Duration longest) {
  Seat& seat = seats_[index];
  if (seat.state != State::kThere || world_.IsPaused(seat.process)) return;
  const sim::Process process = seat.process;
  world_.Pause(process);
  scheduler_.After(Within(longest), [this, process] {
    if (world_.IsAlive(process)) world_.Wake(process);
  });
}

// Another process takes the place of one that has died or was fenced.
void Simulation::LookAfterWorkers() {
  for (uint32_t i = 0; i < seats_.size(); ++i) {
    if (seats_[i].state == State::kGone) Bring(i, absl::Seconds(8));
  }
  scheduler_.After(absl::Milliseconds(300), [this] { LookAfterWorkers(); });
}

// ---- Parameter servers ----

void Simulation::RestartPs(uint32_t ps, absl::Duration longest) {
  scheduler_.After(Within(longest), [this, ps] {
    if (ps < world_.num_ps() && !world_.IsAlive(ps)) world_.Start(ps);
  });
}

void Simulation::StopPs(uint32_t ps) {
  if (!world_.IsAlive(ps)) return;
  if (ps > 0 && scheduler_.Random(2) == 0) {
    proto::LeaveRequest request;
    *request.mutable_sender() = world_.ps_sender(ps);
    world_.Call<proto::LeaveRequest>(sim::ShardNode(ps), sim::kCoordinator,
                                     request, [](const auto&) {});
  }
  world_.Crash(ps);
  if (scheduler_.Random(3) > 0) return RestartPs(ps);
  // The ps is back before its loss is noticed, and gets messages for its
  // earlier life.
  RestartPs(ps, absl::Seconds(1));
  scheduler_.After(Within(absl::Seconds(4)), [this, ps] { RepeatRestore(ps); });
}

void Simulation::RepeatRestore(uint32_t ps) {
  const auto last = last_restores_.find(ps);
  if (last == last_restores_.end()) return;
  world_.SendStray(sim::kCoordinator, sim::ShardNode(ps), last->second);
}

void Simulation::StopAll() {
  for (uint32_t ps = 0; ps < world_.num_ps(); ++ps) {
    if (world_.IsAlive(ps)) world_.Crash(ps);
  }
  for (uint32_t i = 0; i < seats_.size(); ++i) Die(i);
  const bool edits = troubles_.edited && !std::exchange(edited_, true);
  if (edits) world_.SetSteps(steps_);
  if (troubles_.resize) world_.SetNumPs(1 + scheduler_.Random(3));
  if (edits || troubles_.resize) {
    // The job would otherwise wait for the workers that have left, because the
    // cluster, or the job, is another one.
    for (uint32_t i = 0; i < seats_.size(); ++i) Bring(i, absl::Seconds(8));
  }
  // To edit a job, all of it is stopped first: none of its messages is in
  // flight.
  const auto restart = [this] {
    for (uint32_t ps = 0; ps < world_.num_ps(); ++ps) RestartPs(ps);
  };
  if (edits) {
    scheduler_.After(kQuiet, restart);
  } else {
    restart();
  }
}

void Simulation::OnStopped() {
  ++num_stopped_;
  BeginAgain();
}

void Simulation::BeginAgain() {
  StopAll();
  if (troubles_.resize) return;
  for (uint32_t i = 0; i < seats_.size(); ++i) Bring(i, absl::Seconds(8));
}

// ---- What happens ----

// Damages the last checkpoint, if there is one before it to fall back on.
void Simulation::DamageOne() {
  sim::Disk& disk = world_.disk();
  const auto& kept = disk.journal().checkpoints();
  if (kept.size() < 2 || disk.journal().finished()) return;
  const sim::Disk::Name last = sim::Disk::NameOf(kept[kept.size() - 1]);
  const sim::Disk::Name before = sim::Disk::NameOf(kept[kept.size() - 2]);
  if (!disk.IsWhole(last) || !disk.IsWhole(before) || !disk.MayBeRead(before)) {
    return;
  }
  disk.Damage(last, scheduler_.Random(2) == 0);
}

void Simulation::AskForCheckpoint() {
  proto::CheckpointRequest request;
  request.set_wait_ms(2000);
  world_.Call<proto::CheckpointRequest>(sim::kOperator, sim::kCoordinator,
                                        request, [](const auto&) {});
}

bool Simulation::IsTimeToStrike() {
  if (!troubles_.of_workers) return scheduler_.Random(kEventsBetween) == 0;
  return world_.last_to() >= sim::kFirstWorker &&
         world_.phase() == proto::TRAINING &&
         scheduler_.Random(kEventsOfWorkersBetween) == 0;
}

void Simulation::Strike() {
  if (troubles_.of_workers) return StrikeWorker();
  const auto worker = static_cast<uint32_t>(scheduler_.Random(seats_.size()));
  const auto ps = static_cast<uint32_t>(scheduler_.Random(world_.num_ps()));
  switch (scheduler_.Random(world_.job().changes_rate ? 12 : 11)) {
    case 0:
    case 1:
      return Die(worker);
    case 2:
      return FallSilent(worker, absl::Seconds(20));
    case 3:
    case 4:
    case 5:
      if (troubles_.damage) DamageOne();
      return StopPs(ps);
    case 6:
    case 7:
      if (troubles_.damage) DamageOne();
      return StopPs(0);
    case 8:
      if (troubles_.damage) DamageOne();
      return StopAll();
    case 9:
      return AskForCheckpoint();
    case 10:
      return stop_.Ask();
    case 11:
      if (world_.coordinator() == nullptr) return;
      return sim::SetRate(&world_, world_.Status().global_step());
  }
}

// Strikes the worker that has just got a message.
void Simulation::StrikeWorker() {
  const sim::Process process = sim::World::ProcessOf(world_.last_to());
  if (!world_.IsAlive(process)) return;
  const uint32_t index = world_.WorkerIndex(process);
  if (seats_[index].process != process) return;
  switch (scheduler_.Random(4)) {
    case 0:
    case 1:
      return Die(index);
    case 2:
      // For less than a lease, or for more: then the worker finds itself
      // fenced, and another may be there by then.
      FallSilent(index, 3 * world_.job().lease);
      if (scheduler_.Random(2) == 0) Bring(index, world_.job().lease);
      return;
    case 3:
      if (world_.worker(process)->sender().incarnation() == 0) return;
      leaving_.insert(process);
      return world_.worker(process)->StepDown();
  }
}

}  // namespace holdfast
