// Who is here, what is saved, and how a job goes on (docs/recovery.md), under a
// seeded scheduler: the real coordinator and shards, workers, a network that
// delays, reorders, repeats and loses, a disk that is slow and fails at times,
// and processes that die, sleep, leave and come back at any moment. What must
// hold is looked at all the time: values are those of one cut of one line of
// generations, what was told to be final stays, and every job comes to its end,
// with each of its examples used once.
//
// A failure names its scenario and seed. HOLDFAST_SIMULATION_SEED runs that
// schedule alone, HOLDFAST_SIMULATION_SCHEDULES so many of each scenario.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/protocol/push_id.h"
#include "tests/simulation/asynchronous_job.h"
#include "tests/simulation/fate.h"
#include "tests/simulation/simulation.h"
#include "tests/simulation/synchronous_job.h"

namespace holdfast {
namespace {

using Cut = SimulatedDisk::Name;

constexpr absl::Duration kLease = absl::Seconds(6);

struct Schedules {
  uint64_t first = 1;
  uint64_t count = 1;
};

// `count` of them, unless the environment says otherwise.
Schedules SchedulesToRun(uint64_t count) {
  Schedules schedules = {1, count};
  if (const char* seed = std::getenv("HOLDFAST_SIMULATION_SEED")) {
    EXPECT_TRUE(absl::SimpleAtoi(seed, &schedules.first));
    schedules.count = 1;
  } else if (const char* n = std::getenv("HOLDFAST_SIMULATION_SCHEDULES")) {
    EXPECT_TRUE(absl::SimpleAtoi(n, &schedules.count));
  }
  return schedules;
}

// ---- Lines of generations ----

// What was step v of generation g may have been made in an earlier one, whose
// checkpoint g went on from.
Cut Origin(const SimulatedCluster& cluster, Cut cut) {
  for (;;) {
    const auto origin = cluster.origins.find(cut.first);
    if (origin == cluster.origins.end() || !origin->second.has_value() ||
        cut.second > origin->second->second) {
      return cut;
    }
    cut.first = origin->second->first;
  }
}

// Whether what `cut` holds is in `end`, too, and was made only once for both.
bool IsOnLine(const SimulatedCluster& cluster, const Cut& cut, Cut end) {
  const Cut made = Origin(cluster, cut);
  for (end = Origin(cluster, end);;) {
    if (end.first == made.first) return made.second <= end.second;
    const auto origin = cluster.origins.find(end.first);
    if (origin == cluster.origins.end() || !origin->second.has_value()) {
      return made.second == 0;
    }
    end = Origin(cluster, *origin->second);
  }
}

// The journal names whole checkpoints of one line, in order.
void ExpectGoodJournal(const SimulatedCluster& cluster,
                       const proto::Journal& journal) {
  std::optional<Cut> before;
  for (const proto::CheckpointName& message : journal.checkpoints()) {
    const Cut name = SimulatedDisk::NameOf(message);
    if (before.has_value()) {
      EXPECT_LT(*before, name);
      EXPECT_LE(before->second, name.second);
      EXPECT_TRUE(IsOnLine(cluster, *before, name))
          << "a checkpoint of another line is kept";
    }
    before = name;
  }
}

// What the job has told to be final is in its end.
void ExpectDurable(const SimulatedCluster& cluster, const Cut& end) {
  for (const auto& [generation, step] : cluster.told_durable) {
    if (cluster.origins.count(generation) == 0) continue;
    EXPECT_TRUE(IsOnLine(cluster, {generation, step}, end))
        << "generation " << generation << " told that step " << step
        << " is final";
  }
}

// What was kept of calls and pushes is gone when the job is over.
void ExpectNothingLeft(const SimulatedCluster& cluster, size_t most_verdicts) {
  EXPECT_THAT(cluster.network.unanswered(), ::testing::IsEmpty())
      << "calls are parked for ever";
  EXPECT_LE(cluster.coordinator->verdicts_kept(), most_verdicts);
  for (const auto& shard : cluster.shards) {
    if (shard == nullptr) continue;
    EXPECT_EQ(shard->staged_bytes(), 0);
    EXPECT_LE(shard->verdicts_kept(), most_verdicts);
  }
  // No call waits until a share is written or read: it is made again.
  EXPECT_LE(cluster.network.longest_wait(), absl::Seconds(8));
  EXPECT_LE(cluster.disk->num_checkpoints(), 8u);
  EXPECT_FALSE(cluster.disk->destroyed_any())
      << "a checkpoint that one ps could not read is gone";
}

SimulatedCluster::Options ClusterOptions(uint64_t seed, const Faults& faults,
                                         uint32_t num_ps, uint32_t num_workers,
                                         const Troubles& troubles) {
  SimulatedCluster::Options options;
  options.seed = seed;
  options.faults = faults;
  options.num_ps = num_ps;
  options.num_workers = num_workers;
  options.lease = kLease;
  options.disk.emplace();
  options.disk->failing = 30;
  if (troubles.damage) options.disk->unreadable = 100;
  if (troubles.slow_disk) options.disk->longest_write = absl::Minutes(40);
  return options;
}

proto::Checkpoints Every(uint64_t steps) {
  proto::Checkpoints checkpoints;
  checkpoints.set_every_steps(steps);
  checkpoints.set_every_seconds(0);
  checkpoints.set_keep(3);
  return checkpoints;
}

// ---- Synchronous jobs ----

struct SynchronousScenario {
  SynchronousJob job;
  Troubles troubles;
};

std::string NameOf(const SynchronousScenario& s) {
  return absl::StrCat(Name(s.job), "Every", s.job.checkpoints.every_steps(),
                      s.troubles.damage ? "Damaged" : "",
                      s.troubles.resize ? "Resized" : "",
                      s.troubles.slow_disk ? "SlowDisk" : "");
}

class RestartedWorker : public SynchronousWorker {
 public:
  using SynchronousWorker::SynchronousWorker;

 private:
  // Its supervisor starts another.
  void OnRefused(const absl::Status& status) override {
    // One from beyond the ClusterSpec may come before it is declared that it
    // may.
    EXPECT_TRUE(absl::IsAborted(status) || absl::IsInvalidArgument(status))
        << status;
    Die();
  }
};

class SynchronousSimulation : public SynchronousCluster {
 public:
  SynchronousSimulation(const SynchronousJob& job, uint64_t seed,
                        const Troubles& troubles)
      : SynchronousCluster(
            job, ClusterOptions(
                     seed, job.faults, job.num_ps,
                     job.cluster_workers > 0 ? job.cluster_workers : job.m,
                     troubles)) {
    disk->on_journal = [this](const proto::Journal& journal) {
      ExpectGoodJournal(*this, journal);
    };
    disk->on_manifest = [this](const proto::Manifest& manifest) {
      ExpectIsCut(manifest);
    };
  }

  // What the variables are after `cut`, as the commits of its line make them.
  const TrainingState& StateAt(Cut cut) {
    cut = Origin(*this, cut);
    const auto known = states_.find(cut);
    if (known != states_.end()) return known->second;
    TrainingState state;
    if (cut.second == 0) {
      state = First();
    } else if (steps[cut.first].count(cut.second - 1) == 0) {
      ADD_FAILURE() << "version " << cut.second << " in generation "
                    << cut.first << ", and nobody made it";
    } else {
      state = StateAt({cut.first, cut.second - 1});
      MakeStep(cut.first, cut.second - 1, &state);
    }
    return states_.emplace(cut, std::move(state)).first->second;
  }

  // Tickets that the steps up to `cut` have used; each may be used once.
  std::set<uint64_t> SpentAt(Cut cut) {
    std::set<uint64_t> spent;
    for (; cut.second > 0; --cut.second) {
      const Cut made = Origin(*this, cut);
      for (const auto& c : steps[made.first][made.second - 1]) {
        const uint64_t ticket = tickets[made.first].at(PushOf(c));
        EXPECT_TRUE(spent.insert(ticket).second)
            << "ticket " << ticket << " counts twice";
      }
    }
    return spent;
  }

  // A pull is of the version that it says to be.
  void OnPulled(uint32_t ps, const PullReply& reply) override {
    const Cut cut = {reply.generation.value(), reply.version.value()};
    const TrainingState& state = StateAt(cut);
    for (const TensorPiece& piece : reply.tensors) {
      std::vector<float> pulled(piece.data.size() / sizeof(float));
      piece.data.CopyTo(pulled.data());
      const auto all = state.values.find(piece.variable);
      ASSERT_NE(all, state.values.end());
      ASSERT_EQ(std::memcmp(pulled.data(), &all->second[piece.begin],
                            piece.data.size()),
                0)
          << piece.variable << " of version " << cut.second << " in generation "
          << cut.first << " at ps " << ps;
    }
  }

  void OnStep(const proto::CommitRequest& request) override {
    const size_t given = request.contributions_size();
    EXPECT_GT(given, 0u) << "an empty step";
    EXPECT_LE(given, job.n);
    const bool last = request.step() + 1 == job.steps;
    if (given == job.n || (last && job.tickets > 0)) return;
    ASSERT_GT(job.min_replicas, 0u)
        << "step " << request.step() << " is made of " << given;
    size_t alive = 0;
    const proto::GetStatusResponse status = Status();
    for (const proto::TaskStatus& task : status.tasks()) {
      if (task.task().job() == "worker" && task.alive()) ++alive;
    }
    EXPECT_GE(alive, job.min_replicas) << "step " << request.step();
  }

  // What `manifest` names is what the line's steps make, values and slots.
  void ExpectIsCut(const proto::Manifest& manifest) {
    const Cut name = SimulatedDisk::NameOf(manifest.name());
    const TrainingState& state = StateAt(name);
    const auto saved = disk->Read(name);
    for (const auto& [variable, values] : state.values) {
      ExpectSame(saved.at({variable, 0}), values, variable);
    }
    for (const auto& [variable, slot] : state.accumulators) {
      ExpectSame(saved.at({variable, 1}), slot, variable + " (slot)");
    }
    EXPECT_EQ(manifest.position().step(), name.second);
    EXPECT_EQ(manifest.position().loss_scale(), state.loss_scale);
    EXPECT_EQ(manifest.position().steps_at_loss_scale(),
              static_cast<uint64_t>(state.steps_at_loss_scale));
    EXPECT_EQ(manifest.finished(), name.second == job.steps);
    if (job.tickets == 0) return;
    std::set<uint64_t> spent;
    for (uint64_t i = 0; i < manifest.position().next_ticket(); ++i) {
      spent.insert(i);
    }
    for (uint64_t i : manifest.position().returned_tickets()) spent.erase(i);
    EXPECT_EQ(spent, SpentAt(name)) << "the position is not of the cut";
  }

  // Each push has the verdict that it was told.
  void ExpectVerdicts() {
    for (const auto& [generation, pushes] : told) {
      std::set<PushId> counted;
      for (const auto& [step, contributions] : steps[generation]) {
        for (const auto& c : contributions) {
          EXPECT_TRUE(counted.insert(PushOf(c)).second);
        }
      }
      for (const auto& [push, verdict] : pushes) {
        EXPECT_EQ(verdict == proto::ACCEPTED, counted.count(push) > 0)
            << push.ToString() << " was told " << proto::Verdict_Name(verdict);
      }
    }
  }

 private:
  static void ExpectSame(const std::vector<float>& found,
                         const std::vector<float>& expected,
                         const std::string& what) {
    ASSERT_EQ(found.size(), expected.size()) << what;
    ASSERT_EQ(std::memcmp(found.data(), expected.data(),
                          found.size() * sizeof(float)),
              0)
        << what;
  }

  std::map<Cut, TrainingState> states_;
};

// The one right answer, where every seat of every step is filled: that of a
// single process.
TrainingState RightAnswer(const SynchronousJob& job) {
  SynchronousCluster alone(job, /*seed=*/1);
  TrainingState state = SynchronousCluster::First();
  for (uint64_t step = 0; step < job.steps; ++step) {
    std::vector<proto::StepContribution>& all = alone.steps[1][step];
    all.resize(job.n);
    for (uint32_t seat = 0; seat < job.n; ++seat) all[seat].set_seat(seat);
    alone.MakeStep(1, step, &state);
  }
  return state;
}

class SynchronousRecoveryTest
    : public ::testing::TestWithParam<SynchronousScenario> {};

TEST_P(SynchronousRecoveryTest, PromisesHoldUnderEverySchedule) {
  const SynchronousScenario scenario = GetParam();
  const SynchronousJob& job = scenario.job;
  const Schedules schedules =
      SchedulesToRun(scenario.troubles.slow_disk ? 30 : 600);
  uint64_t generations = 0;
  for (uint64_t i = 0; i < schedules.count; ++i) {
    const uint64_t seed = schedules.first + i;
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    SynchronousSimulation sim(job, seed, scenario.troubles);
    Fate fate(&sim, scenario.troubles, job.m, sim.options.num_workers,
              [&sim](uint32_t index, uint64_t nonce) {
                return std::make_unique<RestartedWorker>(&sim, index, nonce);
              });
    fate.Run();
    ASSERT_FALSE(HasFailure());

    const proto::Journal& journal = sim.disk->journal();
    ASSERT_TRUE(journal.finished());
    const Cut end = SimulatedDisk::NameOf(*journal.checkpoints().rbegin());
    ASSERT_EQ(end.second, job.steps);
    if (job.tickets > 0) {
      // Where steps are made of fewer, some are never used.
      const size_t spent = sim.SpentAt(end).size();
      ASSERT_TRUE(spent == job.tickets ||
                  (spent < job.tickets && job.min_replicas > 0));
    } else if (job.n >= job.m && job.min_replicas == 0) {
      const TrainingState right = RightAnswer(job);
      for (const auto& [name, values] : sim.StateAt(end).values) {
        ASSERT_EQ(std::memcmp(values.data(), right.values.at(name).data(),
                              values.size() * sizeof(float)),
                  0)
            << "not the one right answer: " << name;
      }
    }
    sim.ExpectVerdicts();
    const bool damaged = fate.damaged() || sim.disk->num_set_aside() > 0;
    if (!damaged) ExpectDurable(sim, end);
    ExpectNothingLeft(sim, 8 * std::max(job.n, job.m));
    ASSERT_FALSE(HasFailure());
    generations += journal.generation();
  }
  RecordProperty("generations", static_cast<int>(generations));
  if (schedules.count > 1) {
    EXPECT_GT(generations, schedules.count) << "nothing was ever lost";
  }
}

constexpr Faults kSome = {30, 100};

SynchronousJob Job(uint32_t n, uint32_t m, uint32_t num_ps, uint64_t steps,
                   uint64_t every, uint64_t tickets = 0) {
  SynchronousJob job;
  job.n = n;
  job.m = m;
  job.num_ps = num_ps;
  job.steps = steps;
  job.faults = kSome;
  job.tickets = tickets;
  job.checkpoints = Every(every);
  return job;
}

// Of `cluster_workers` in the ClusterSpec, and m at most.
SynchronousJob Continues(SynchronousJob job, uint32_t min_replicas,
                         uint32_t cluster_workers) {
  job.min_replicas = min_replicas;
  job.cluster_workers = cluster_workers;
  return job;
}

SynchronousJob WithWeight0(SynchronousJob job) {
  job.empty_handed = true;
  return job;
}

INSTANTIATE_TEST_SUITE_P(
    Scenarios, SynchronousRecoveryTest,
    ::testing::ValuesIn(std::vector<SynchronousScenario>{
        {Job(1, 1, 1, 6, 2), {3}},
        {Job(2, 2, 2, 8, 2), {3}},
        {Job(2, 2, 3, 8, 1), {4}},
        {WithWeight0(Job(3, 3, 2, 8, 3)), {4}},
        {Job(2, 2, 2, 10, 0), {3}},
        {Job(4, 2, 2, 6, 2), {3}},
        {Job(2, 3, 2, 8, 2), {4}},
        {Job(2, 2, 2, 10, 2), {4, true, true}},
        {Job(2, 2, 2, 6, 3), {2, false, false, true}},
        {Job(2, 2, 3, 6, 2, 12), {4}},
        {WithWeight0(Job(4, 2, 2, 5, 2, 18)), {4, true, true}},
        {Job(2, 3, 2, 7, 2, 13), {4}},
        {Continues(Job(3, 3, 2, 8, 2), 1, 3), {4}},
        {Continues(Job(3, 3, 2, 7, 2, 20), 2, 2), {5, true, true}},
        {Continues(Job(2, 4, 3, 8, 2, 15), 1, 2), {5}},
        {Continues(Job(2, 3, 2, 8, 2, 15), 1, 1), {5}},
    }),
    [](const auto& info) { return NameOf(info.param); });

// ---- Asynchronous jobs ----

struct AsynchronousScenario {
  AsynchronousJob job;
  Troubles troubles;
};

std::string NameOf(const AsynchronousScenario& s) {
  const AsynchronousJob& job = s.job;
  return absl::StrCat(
      "P", job.num_ps, "W", job.workers, "D", job.depth,
      job.bound.has_value() ? absl::StrCat("S", *job.bound) : "",
      job.momentum ? "Momentum" : "", "Every", job.checkpoints.every_steps(),
      s.troubles.damage ? "Damaged" : "", s.troubles.resize ? "Resized" : "",
      s.troubles.slow_disk ? "SlowDisk" : "");
}

class RestartedAsynchronousWorker : public AsynchronousWorker {
 public:
  using AsynchronousWorker::AsynchronousWorker;

 private:
  void OnRefused(const absl::Status& status) override {
    EXPECT_TRUE(absl::IsAborted(status)) << status;
    Die();
  }
};

class AsynchronousSimulation : public AsynchronousCluster {
 public:
  AsynchronousSimulation(const AsynchronousJob& job, uint64_t seed,
                         const Troubles& troubles)
      : AsynchronousCluster(job, ClusterOptions(seed, kSome, job.num_ps,
                                                job.workers, troubles)) {
    disk->on_journal = [this](const proto::Journal& journal) {
      ExpectGoodJournal(*this, journal);
    };
    disk->on_manifest = [this](const proto::Manifest& manifest) {
      ExpectIsCut(manifest);
    };
  }

  // What `name` holds is made of whole pushes of its line, one for each ticket
  // that its position says to be spent, the same on all ps. Returns those that
  // changed something.
  std::map<uint64_t, std::set<PushId>> ExpectIsCut(
      const proto::Manifest& manifest) {
    const Cut name = SimulatedDisk::NameOf(manifest.name());
    const proto::Position& position = manifest.position();
    Values values;
    for (const auto& [array, elements] : disk->Read(name)) {
      if (array.second == 0) values[array.first] = elements;
    }
    std::set<uint64_t> spent;
    for (uint64_t i = 0; i < position.next_ticket(); ++i) spent.insert(i);
    for (uint64_t i : position.returned_tickets()) spent.erase(i);
    EXPECT_EQ(spent.size(), name.second);
    EXPECT_EQ(position.step(), name.second);
    EXPECT_EQ(position.pushes().accepted(), name.second);
    EXPECT_TRUE(!manifest.finished() || name.second == job.tickets);

    std::map<uint64_t, std::set<PushId>> in;
    std::vector<Given> counted;
    for (uint64_t ticket : spent) {
      const float c = values.at(kTickets)[2 * ticket];
      if (c == 0) continue;
      const int attempt =
          std::lround(std::log2(values.at(kTickets)[2 * ticket + 1] / c) / 2);
      for (const auto& [generation, pushes] : given) {
        for (const auto& [push, by] : pushes) {
          if (by.ticket != ticket || by.attempt != attempt) continue;
          counted.push_back(by);
          in[generation].insert(push);
          EXPECT_TRUE(Holds(generation, name))
              << push.ToString() << " of generation " << generation
              << " is in a checkpoint of another line";
        }
      }
    }
    ExpectMadeOf(job, counted, values);
    return in;
  }

  // Whether `end` goes back to something that was made in the generation.
  bool Holds(uint64_t generation, Cut end) const {
    for (;;) {
      if (end.first == generation) return true;
      const auto origin = origins.find(end.first);
      if (origin == origins.end() || !origin->second.has_value()) return false;
      end = *origin->second;
    }
  }

  // What was told is so.
  void ExpectVerdicts(const Cut& end, bool damaged) {
    std::map<uint64_t, std::set<PushId>> in = ExpectIsCut(disk->manifest(end));
    for (const auto& [generation, pushes] : given) {
      for (const auto& [push, by] : pushes) {
        if (by.accepted_by.empty() || by.clip_factor == 0) continue;
        const auto through = told_through[generation].find(push.from);
        const bool is_final =
            generation == end.first ||
            (!damaged && through != told_through[generation].end() &&
             push.sequence.value() <= through->second);
        if (is_final) {
          EXPECT_GT(in[generation].count(push), 0u)
              << push.ToString() << " of generation " << generation
              << " was told ACCEPTED";
        }
      }
    }
  }
};

class AsynchronousRecoveryTest
    : public ::testing::TestWithParam<AsynchronousScenario> {};

TEST_P(AsynchronousRecoveryTest, PromisesHoldUnderEverySchedule) {
  const AsynchronousScenario scenario = GetParam();
  const AsynchronousJob& job = scenario.job;
  const Schedules schedules =
      SchedulesToRun(scenario.troubles.slow_disk ? 30 : 600);
  uint64_t generations = 0;
  for (uint64_t i = 0; i < schedules.count; ++i) {
    const uint64_t seed = schedules.first + i;
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    AsynchronousSimulation sim(job, seed, scenario.troubles);
    Fate fate(&sim, scenario.troubles, job.workers, job.workers,
              [&sim](uint32_t index, uint64_t nonce) {
                return std::make_unique<RestartedAsynchronousWorker>(
                    &sim, index, nonce);
              });
    fate.Run();
    ASSERT_FALSE(HasFailure());

    const proto::Journal& journal = sim.disk->journal();
    ASSERT_TRUE(journal.finished());
    const Cut end = SimulatedDisk::NameOf(*journal.checkpoints().rbegin());
    ASSERT_EQ(end.second, job.tickets);
    const bool damaged = fate.damaged() || sim.disk->num_set_aside() > 0;
    sim.ExpectVerdicts(end, damaged);
    if (!damaged) ExpectDurable(sim, end);
    ExpectNothingLeft(sim, 4 * job.workers * (job.depth + 1));
    ASSERT_FALSE(HasFailure());
    generations += journal.generation();
  }
  RecordProperty("generations", static_cast<int>(generations));
  if (schedules.count > 1) {
    EXPECT_GT(generations, schedules.count) << "nothing was ever lost";
  }
}

AsynchronousJob Asynchronous(uint32_t num_ps, uint32_t workers, uint32_t depth,
                             std::optional<uint32_t> bound, bool momentum,
                             uint64_t every) {
  AsynchronousJob job;
  job.num_ps = num_ps;
  job.workers = workers;
  job.depth = depth;
  job.bound = bound;
  job.momentum = momentum;
  job.tickets = 20;
  job.checkpoints = Every(every);
  return job;
}

INSTANTIATE_TEST_SUITE_P(
    Scenarios, AsynchronousRecoveryTest,
    ::testing::ValuesIn(std::vector<AsynchronousScenario>{
        {Asynchronous(1, 1, 1, std::nullopt, true, 4), {3}},
        {Asynchronous(2, 2, 1, std::nullopt, true, 3), {4}},
        {Asynchronous(3, 3, 2, std::nullopt, false, 4), {4}},
        {Asynchronous(2, 3, 3, std::nullopt, true, 1), {4, true, true}},
        {Asynchronous(2, 2, 1, 0, false, 3), {4}},
        {Asynchronous(2, 2, 1, std::nullopt, true, 8), {2, false, false, true}},
        {Asynchronous(3, 3, 2, 1, true, 4), {5, true, true}},
        {Asynchronous(2, 2, 2, std::nullopt, false, 0), {3}},
    }),
    [](const auto& info) { return NameOf(info.param); });

}  // namespace
}  // namespace holdfast
