// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/chaos.h"

#include <signal.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <iostream>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"
#include "tests/faults/cluster.h"
#include "tests/faults/jobs.h"

namespace holdfast {
namespace {

constexpr absl::Duration kRoundLimit = absl::Seconds(90);

enum class Fault { kKill, kPause, kTerminate };
constexpr const char* kFaults[] = {"kill -9", "pause", "terminate"};

constexpr const char* kTargets[] = {"worker", "chief", "ps 1",
                                    "ps 0",   "two",   "all"};

enum class Moment { kStart, kTraining, kCheckpoint, kRestore, kEnd };
constexpr const char* kMoments[] = {"start", "training", "checkpoint",
                                    "restore", "end"};

// One round, including its random choices.
struct Round {
  uint64_t number = 0;
  Fault fault = Fault::kKill;
  std::string target;
  std::vector<std::string> tasks;
  Moment moment = Moment::kStart;
  JobKind kind = JobKind::kSynchronous;
  // The step from which on the moment is awaited, and the time from the moment
  // to the fault.
  uint64_t from_step = 0;
  absl::Duration delay;
  absl::Duration pause;

  std::string Name() const {
    return absl::StrFormat(
        "round %d: %s %s (%s) at %s of %s job, from step %d, %s later", number,
        kFaults[static_cast<int>(fault)], target, absl::StrJoin(tasks, ", "),
        kMoments[static_cast<int>(moment)], NameOf(kind), from_step,
        absl::FormatDuration(delay));
  }
};

std::vector<std::string> TasksOf(const std::string& target,
                                 std::mt19937_64* random) {
  if (target == "worker") return {"worker-1"};
  if (target == "chief") return {"worker-0"};
  if (target == "ps 1") return {"ps-1"};
  if (target == "ps 0") return {"ps-0"};
  std::vector<std::string> all = {"ps-0", "ps-1", "worker-0", "worker-1"};
  if (target == "all") return all;
  std::swap(all[0], all[(*random)() % all.size()]);
  std::swap(all[1], all[1 + (*random)() % (all.size() - 1)]);
  return {all[0], all[1]};
}

Round MakeRound(uint64_t seed, uint64_t number) {
  std::seed_seq seeds{seed, number};
  std::mt19937_64 random(seeds);
  const auto milliseconds = [&](uint64_t below) {
    return absl::Milliseconds(random() % below);
  };
  const uint64_t place = number % 18;
  const uint64_t lap = number / 18 + seed;
  Round round;
  round.number = number;
  round.fault = static_cast<Fault>(place % 3);
  round.target = kTargets[place / 3];
  round.tasks = TasksOf(round.target, &random);
  round.moment = static_cast<Moment>((place + lap) % 5);
  // 40 laps cover every pair of the two, because 5 and 8 have no common factor.
  static_assert(std::size(kJobKinds) == 8);
  round.kind = kJobKinds[(place + lap) % std::size(kJobKinds)];
  round.from_step = 1 + random() % (kJobSteps * 3 / 4);
  switch (round.moment) {
    case Moment::kStart:
      round.delay = milliseconds(700);
      break;
    case Moment::kRestore:
      round.delay = milliseconds(60);
      break;
    case Moment::kEnd:
      round.delay = milliseconds(60);
      break;
    case Moment::kTraining:
      round.delay = milliseconds(20);
      break;
    case Moment::kCheckpoint:
      round.delay = milliseconds(5);
      break;
  }
  round.pause = kJobLease * 1.3 + milliseconds(1200);
  return round;
}

// Whether a checkpoint's folder exists without its manifest.
bool CheckpointUnderWay(const std::string& checkpoint_dir) {
  std::error_code ignored;
  for (const auto& entry :
       std::filesystem::directory_iterator(checkpoint_dir, ignored)) {
    if (entry.is_directory(ignored) &&
        !std::filesystem::exists(entry.path() / "MANIFEST", ignored)) {
      return true;
    }
  }
  return false;
}

struct Outcome {
  absl::Status status;
  // False if none of the tasks was running any more.
  bool struck = false;
  // The time from the fault (for a pause, from its end) until the step exceeded
  // all steps before. None if the job had made all its steps.
  std::optional<absl::Duration> recovery;
  // The result of CheckShared.
  absl::Status shared;
};

class RoundRun {
 public:
  RoundRun(const Round& round, bool tls, const std::string& folder)
      : round_(round), cluster_(OptionsOf(round, tls, folder)) {}

  Outcome Run(const std::string& digest) {
    deadline_ = SteadyNow() + kRoundLimit;
    cluster_.StartAll();
    AwaitMoment();
    Outcome outcome;
    const uint64_t step = cluster_.max_step();
    outcome.struck = Strike();
    absl::Time begun = SteadyNow();
    if (round_.fault == Fault::kPause) begun += round_.pause;
    const bool goes_on =
        Until([&] { return cluster_.max_step() > step || ended(); });
    if (goes_on && outcome.struck && step < kJobSteps) {
      outcome.recovery = std::max(SteadyNow() - begun, absl::ZeroDuration());
    }
    outcome.status = cluster_.AwaitEnd(deadline_ - SteadyNow());
    outcome.shared = CheckShared(cluster_);
    if (outcome.status.ok()) {
      outcome.status = CheckEnd(round_.kind, cluster_, digest);
      if (!outcome.status.ok()) {
        outcome.status = absl::Status(
            outcome.status.code(),
            absl::StrCat(outcome.status.message(), "\n", cluster_.Describe()));
      }
    }
    return outcome;
  }

 private:
  static TaskCluster::Options OptionsOf(const Round& round, bool tls,
                                        const std::string& folder) {
    TaskCluster::Options options = SmallCluster(round.kind, folder);
    options.tls = tls;
    // So that some rows are on ps that are not hit.
    if (round.kind == JobKind::kTablesBounded) options.num_ps = 4;
    return options;
  }

  bool Until(const std::function<bool()>& done) {
    return cluster_.AdvanceUntil([&] { return cluster_.failed() || done(); },
                                 deadline_ - SteadyNow()) &&
           !cluster_.failed();
  }

  bool ended() const { return cluster_.exit_code("ps-0") == 0; }

  void AwaitMoment() {
    const auto at_step = [&](uint64_t step) {
      return ended() || cluster_.status().global_step() >= step;
    };
    switch (round_.moment) {
      case Moment::kStart:
        break;
      case Moment::kTraining:
        Until([&] { return at_step(round_.from_step); });
        break;
      case Moment::kCheckpoint:
        Until([&] { return at_step(round_.from_step); });
        Until([&] {
          return ended() || CheckpointUnderWay(cluster_.checkpoint_dir());
        });
        break;
      case Moment::kRestore: {
        Until([&] { return at_step(round_.from_step); });
        const uint64_t generation = cluster_.status().generation();
        cluster_.Signal("ps-1", SIGKILL);
        Until([&] {
          return ended() || cluster_.status().generation() > generation;
        });
        break;
      }
      case Moment::kEnd:
        Until([&] { return at_step(kJobSteps); });
        break;
    }
    cluster_.AdvanceFor(round_.delay);
  }

  bool Strike() {
    bool struck = false;
    for (const std::string& task : round_.tasks) {
      struck = struck || cluster_.running(task);
      switch (round_.fault) {
        case Fault::kKill:
          cluster_.Signal(task, SIGKILL);
          break;
        case Fault::kPause:
          cluster_.Pause(task, round_.pause);
          break;
        case Fault::kTerminate:
          cluster_.Signal(task, SIGTERM);
          break;
      }
    }
    return struck;
  }

  const Round round_;
  TaskCluster cluster_;
  absl::Time deadline_;
};

struct Tally {
  uint64_t rounds = 0;
  uint64_t struck = 0;
  uint64_t survived = 0;
  absl::Duration worst;

  void Add(const Outcome& outcome) {
    ++rounds;
    struck += outcome.struck ? 1 : 0;
    survived += outcome.status.ok() ? 1 : 0;
    worst = std::max(worst, outcome.recovery.value_or(absl::ZeroDuration()));
  }
};

class Report {
 public:
  void Add(const Round& round, const Outcome& outcome)
      ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    const auto add = [&](int group, int order, const std::string& what) {
      tallies_[group][{order, what}].Add(outcome);
    };
    const int fault = static_cast<int>(round.fault);
    const int target =
        std::find(std::begin(kTargets), std::end(kTargets), round.target) -
        std::begin(kTargets);
    add(0, fault * 10 + target,
        absl::StrCat(kFaults[fault], ", ", round.target));
    const int moment = static_cast<int>(round.moment);
    add(1, moment, absl::StrCat("at ", kMoments[moment]));
    add(2, static_cast<int>(round.kind), NameOf(round.kind));
    add(3, 0, "in all");
    // One job in which shared memory was seen is enough.
    absl::Status& shared =
        shared_.emplace(round.kind, outcome.shared).first->second;
    if (outcome.shared.ok()) shared = absl::OkStatus();
    std::cout << round.Name() << ": "
              << (outcome.status.ok() ? "survived" : "NOT SURVIVED")
              << (outcome.struck ? "" : " (came too late)");
    if (outcome.recovery.has_value()) {
      std::cout << ", went on after "
                << absl::FormatDuration(
                       absl::Trunc(*outcome.recovery, absl::Milliseconds(1)));
    }
    std::cout << std::endl;
    if (!outcome.status.ok()) {
      report_.failures.push_back(
          absl::StrCat(round.Name(), ": ", outcome.status.ToString()));
    }
  }

  ChaosReport Finish() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    for (const auto& [kind, shared] : shared_) {
      if (shared.ok()) continue;
      report_.failures.push_back(
          absl::StrCat("all ", NameOf(kind), " jobs: ", shared.ToString()));
    }
    report_.table = absl::StrFormat("%-20s %6s %9s %9s  %s\n", "", "rounds",
                                    "in time", "survived", "longest recovery");
    for (const auto& [group, tallies] : tallies_) {
      for (const auto& [what, tally] : tallies) {
        absl::StrAppendFormat(&report_.table, "%-20s %6d %9d %9d  %.2f s\n",
                              what.second, tally.rounds, tally.struck,
                              tally.survived,
                              absl::ToDoubleSeconds(tally.worst));
      }
    }
    return report_;
  }

 private:
  absl::Mutex mutex_;
  ChaosReport report_ ABSL_GUARDED_BY(mutex_);
  // Keyed by group of the table, then by place in the group.
  std::map<int, std::map<std::pair<int, std::string>, Tally>> tallies_
      ABSL_GUARDED_BY(mutex_);
  // Keyed by kind of job.
  std::map<JobKind, absl::Status> shared_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

ChaosReport RunChaos(const ChaosOptions& options) {
  std::cout << "seed " << options.seed << ", rounds " << options.first_round
            << " to " << options.first_round + options.rounds - 1 << std::endl;
  const auto digests = DigestsInPeace(options.folder + "/peace");
  if (!digests.ok()) {
    ChaosReport report;
    report.failures = {absl::StrCat("in peace: ", digests.status().ToString())};
    return report;
  }
  Report report;
  std::atomic<uint64_t> next(0);
  std::vector<std::thread> threads;
  for (int i = 0; i < options.parallel; ++i) {
    threads.emplace_back([&] {
      for (;;) {
        const uint64_t index = next++;
        if (index >= options.rounds) return;
        const Round round =
            MakeRound(options.seed, options.first_round + index);
        const std::string folder =
            absl::StrCat(options.folder, "/round-", round.number);
        const Outcome outcome =
            RoundRun(round, options.tls, folder).Run(digests->at(round.kind));
        report.Add(round, outcome);
        if (outcome.status.ok()) std::filesystem::remove_all(folder);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return report.Finish();
}

}  // namespace holdfast
