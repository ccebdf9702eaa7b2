// The asynchronous protocol under a seeded scheduler: the real coordinator and
// shards, workers that follow docs/asynchronous.md, a network that delays,
// reorders, repeats and loses, and workers that die, fall silent for a while or
// leave at any moment. During each schedule the handing out of tickets is
// watched, and after it the promises are checked: each ticket is spent once, by
// one push, which every shard has applied once, and what anybody was told of a
// push is what became of it.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/task_id.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/protocol/push_id.h"
#include "tests/simulation/asynchronous_job.h"
#include "tests/simulation/simulation.h"

namespace holdfast {
namespace {

// Short beside the longest delay of a message, so that a live worker is shut
// out at times.
constexpr absl::Duration kLease = absl::Seconds(4);

struct Scenario {
  uint32_t num_ps = 1;
  uint32_t workers = 1;
  uint32_t depth = 1;
  std::optional<uint32_t> bound;
  Faults faults;
  // Workers that die, fall silent or leave, at most.
  int mishaps = 0;
  bool momentum = false;
  // Places of a shard for pushes that are not the next of their worker. Absent:
  // as many as anybody may take.
  std::optional<uint32_t> extra_places;
  // At most 20.
  uint64_t tickets = 12;
  bool faulty = false;
};

std::string Name(const Scenario& s) {
  return absl::StrCat(
      "P", s.num_ps, "W", s.workers, "D", s.depth,
      s.bound.has_value() ? absl::StrCat("S", *s.bound) : "",
      s.faults.lost > 0 ? "Lossy" : "", s.faults.repeated > 0 ? "Twice" : "",
      s.mishaps > 0 ? "Deaths" : "", s.momentum ? "Momentum" : "",
      s.extra_places.has_value() ? absl::StrCat("Extra", *s.extra_places) : "",
      s.faulty ? "Faulty" : "");
}

AsynchronousJob JobOf(const Scenario& s) {
  AsynchronousJob job;
  job.num_ps = s.num_ps;
  job.workers = s.workers;
  job.depth = s.depth;
  job.bound = s.bound;
  job.momentum = s.momentum;
  job.tickets = s.tickets;
  job.faulty = s.faulty;
  return job;
}

// Bytes of pushes that may be on one ps [A2].
int64_t MostStaged(const Scenario& s) {
  const uint32_t extra = s.workers * (s.depth - 1);
  return PushBytes(JobOf(s)) * (s.workers + s.extra_places.value_or(extra));
}

SimulatedCluster::Options ClusterOptions(const Scenario& s, uint64_t seed) {
  SimulatedCluster::Options options;
  options.seed = seed;
  options.faults = s.faults;
  options.num_ps = s.num_ps;
  options.num_workers = s.workers;
  if (s.mishaps > 0) options.lease = kLease;
  if (s.extra_places.has_value()) {
    // Values, momentum's slot, the next version and one that is being read.
    options.memory_limit_bytes = 3 * PushBytes(JobOf(s)) +
                                 (s.momentum ? sizeof(float) : 0) +
                                 MostStaged(s);
  }
  return options;
}

class Worker;

// The cluster of one schedule, its workers, and a book of what is seen between
// them: the tests' own, to compare with the coordinator's.
class Simulation : public AsynchronousCluster {
 public:
  Simulation(const Scenario& scenario, uint64_t seed);

  // A process for worker `index`, after a while.
  void StartWorker(uint32_t index, absl::Duration after);
  // A newcomer in its place, soon.
  void Replace(uint32_t index) {
    StartWorker(index, absl::Milliseconds(scheduler.Random(2000)));
  }

  // What may happen to a worker at any moment.
  enum class Mishap { kNone, kDies, kDiesAfter, kFallsSilent, kLeaves };
  Mishap NextMishap();

  void Register(const proto::RegisterRequest& request,
                Reply<proto::RegisterResponse> reply) override;
  void TakeTicket(const proto::TakeTicketRequest& request,
                  Reply<proto::TakeTicketResponse> reply) override;
  void OnTaken(uint64_t generation, const PushId& push) override;
  void Apply(uint32_t ps, const proto::ApplyRequest& request,
             Reply<proto::ApplyResponse> reply) override;
  void OnSent(const ShardRequest& request) override;
  void OnHandled(uint32_t ps, const ShardRequest& request) override;
  void OnTick() override;

  // Workers on whom the coordinator counts.
  std::set<WorkerLife> LiveOnes() const;
  bool IsLive(const WorkerLife& life) const {
    return LiveOnes().count(life) > 0;
  }
  bool all_gone() const;

  void CheckValues();
  void CheckStatus();

  const Scenario scenario;
  std::vector<std::unique_ptr<Worker>> workers;
  // Those of the one generation.
  std::map<PushId, Given>& given() { return AsynchronousCluster::given[1]; }
  // Pushes that count: told as spent, or resolved so.
  std::set<PushId> counted;
  uint64_t fenced = 0;
  uint64_t resolved_pushes = 0;

 private:
  struct Life {
    // [A1]
    uint64_t clock = 0;
    // Tickets that are out.
    std::set<PushId> held;
    // Shards that have resolved it.
    std::set<uint32_t> resolved;
  };

  void Count(const PushId& push);
  uint64_t SlowestClock() const;
  // [A1, P3] Whether a live worker may begin this push.
  bool MayBegin(const Life& life, const PushId& push) const;

  std::map<WorkerLife, Life> lives_;
  std::map<std::pair<uint32_t, WorkerLife>, int> parked_applies_;
  // The last push that had it.
  std::map<uint64_t, PushId> holders_;
  int mishaps_left_;
  uint64_t next_nonce_ = 1;
};

// A worker to whom something may happen at any moment.
class Worker : public AsynchronousWorker {
 public:
  Worker(Simulation* sim, uint32_t index, uint64_t nonce)
      : AsynchronousWorker(sim, index, nonce), sim_(sim) {}

 private:
  // ---- What happens to it ----

  void Hear(std::function<void()> event) override {
    using Mishap = Simulation::Mishap;
    if (gone()) return;
    switch (placed_ ? sim_->NextMishap() : Mishap::kNone) {
      case Mishap::kNone:
        return SimulatedWorker::Hear(std::move(event));
      case Mishap::kDies:
        return GoAndBeReplaced();
      case Mishap::kDiesAfter:
        SimulatedWorker::Hear(std::move(event));
        return GoAndBeReplaced();
      case Mishap::kFallsSilent:
        FallSilentForAWhile();
        return SimulatedWorker::Hear(std::move(event));
      case Mishap::kLeaves:
        SimulatedWorker::Hear(std::move(event));
        return Leave();
    }
  }

  // For less than a lease, or for more: then it finds itself shut out.
  void FallSilentForAWhile() {
    FallSilent(sim_->scheduler.RandomDuration(absl::Seconds(12)));
    if (sim_->scheduler.Random(2) == 0) {
      replaced_ = true;
      sim_->StartWorker(index(), kLease);
    }
  }

  // By a newcomer; not always, where there are others.
  void GoAndBeReplaced() {
    if (gone()) return;
    Die();
    const bool needed = sim_->all_gone();
    if (!needed && (replaced_ || sim_->scheduler.Random(4) == 0)) return;
    sim_->Replace(index());
  }

  void OnFenced() override {
    if (gone()) return;
    EXPECT_FALSE(sim_->IsLive(life())) << "a live worker is told FENCED";
    ++sim_->fenced;
    GoAndBeReplaced();
  }

  // In the middle, or at the end.
  void OnLeft(const proto::JobState& state) override {
    if (state.phase() != proto::DONE) sim_->Replace(index());
  }

  // Nothing more is to be had here: shut out, or too late.
  void OnRefused(const absl::Status& status) override {
    ASSERT_TRUE(absl::IsAborted(status)) << status;
    OnFenced();
  }

  void OnPlaced() override {
    placed_ = true;
    AsynchronousWorker::OnPlaced();
  }

  Simulation* const sim_;
  bool replaced_ = false;
  bool placed_ = false;
};

Simulation::Simulation(const Scenario& scenario, uint64_t seed)
    : AsynchronousCluster(JobOf(scenario), ClusterOptions(scenario, seed)),
      scenario(scenario),
      mishaps_left_(scenario.mishaps) {}

void Simulation::StartWorker(uint32_t index, absl::Duration after) {
  workers.push_back(std::make_unique<Worker>(this, index, next_nonce_++));
  scheduler.After(after, [worker = workers.back().get()] { worker->Start(); });
}

bool Simulation::all_gone() const {
  return std::all_of(workers.begin(), workers.end(),
                     [](const auto& worker) { return worker->gone(); });
}

Simulation::Mishap Simulation::NextMishap() {
  if (mishaps_left_ == 0 || coordinator->state().phase() != proto::TRAINING ||
      scheduler.Random(60) > 0) {
    return Mishap::kNone;
  }
  --mishaps_left_;
  return static_cast<Mishap>(1 + scheduler.Random(4));
}

std::set<WorkerLife> Simulation::LiveOnes() const {
  const proto::GetStatusResponse status = Status();
  std::set<WorkerLife> live;
  for (const proto::TaskStatus& task : status.tasks()) {
    if (task.task().job() != kWorkerJob || !task.alive()) continue;
    live.insert({{task.task().job(), task.task().index()},
                 Incarnation(task.incarnation())});
  }
  return live;
}

uint64_t Simulation::SlowestClock() const {
  std::optional<uint64_t> slowest;
  for (const WorkerLife& life : LiveOnes()) {
    const auto book = lives_.find(life);
    if (book == lives_.end()) continue;  // the one that just comes
    slowest =
        std::min(slowest.value_or(book->second.clock), book->second.clock);
  }
  return slowest.value_or(0);
}

void Simulation::Register(const proto::RegisterRequest& request,
                          Reply<proto::RegisterResponse> reply) {
  const TaskId task = LifeOf(request.sender()).worker;
  SimulatedCluster::Register(
      request, [this, task, reply = std::move(reply)](
                   absl::StatusOr<proto::RegisterResponse> response) mutable {
        if (response.ok() && response->incarnation() > 0) {
          // [A1] Who joins later begins with the slowest.
          const uint64_t slowest = SlowestClock();
          const WorkerLife life{task, Incarnation(response->incarnation())};
          if (const auto [it, fresh] = lives_.emplace(life, Life()); fresh) {
            it->second.clock = slowest;
          }
        }
        reply(std::move(response));
      });
}

void Simulation::Count(const PushId& push) {
  if (!counted.insert(push).second) return;
  Life& life = lives_.at(push.from);
  EXPECT_EQ(life.held.erase(push), 1u) << push.ToString() << " had no ticket";
  ++life.clock;
}

void Simulation::TakeTicket(const proto::TakeTicketRequest& request,
                            Reply<proto::TakeTicketResponse> reply) {
  const WorkerLife life = LifeOf(request.sender());
  if (request.spent_size() > 0 && IsLive(life)) {
    for (const proto::SpentTicket& spent : request.spent()) {
      Count({life, PushSequence(spent.sequence())});
    }
  }
  SimulatedCluster::TakeTicket(request, std::move(reply));
}

bool Simulation::MayBegin(const Life& life, const PushId& push) const {
  const uint64_t lowest = life.held.empty()
                              ? push.sequence.value()
                              : life.held.begin()->sequence.value();
  if (push.sequence.value() - lowest > scenario.depth) return false;
  return !scenario.bound.has_value() ||
         life.clock + life.held.size() <= SlowestClock() + *scenario.bound;
}

void Simulation::OnTaken(uint64_t generation, const PushId& push) {
  const uint64_t ticket = given().at(push).ticket;
  Life& life = lives_.at(push.from);
  EXPECT_TRUE(IsLive(push.from)) << push.ToString() << " gets a ticket";
  EXPECT_TRUE(MayBegin(life, push)) << push.ToString() << " is too far ahead";
  EXPECT_LE(life.held.size(), scenario.depth) << push.ToString();
  life.held.insert(push);
  // [A5] It was nobody's, or is so now for every shard.
  if (const auto before = holders_.find(ticket); before != holders_.end()) {
    const PushId& holder = before->second;
    Life& late = lives_.at(holder.from);
    EXPECT_EQ(counted.count(holder), 0u) << "ticket " << ticket << " was spent";
    EXPECT_EQ(late.resolved.size(), scenario.num_ps)
        << "ticket " << ticket << " may yet count with " << holder.ToString();
    late.held.erase(holder);
  }
  holders_.insert_or_assign(ticket, push);
}

void Simulation::OnSent(const ShardRequest& request) {
  if (const auto* fence = std::get_if<proto::FenceRequest>(&request)) {
    for (const proto::WorkerLife& life : fence->lives()) {
      EXPECT_FALSE(IsLive(LifeOf(life)));
    }
  }
  const auto* resolve = std::get_if<proto::ResolveRequest>(&request);
  if (resolve == nullptr) return;
  for (const proto::AppliedPush& applied : resolve->applied()) {
    const PushId push{LifeOf(applied.from()), PushSequence(applied.sequence())};
    if (counted.count(push) == 0) ++resolved_pushes;
    Count(push);
    EXPECT_EQ(given().at(push).clip_factor, applied.clip_factor());
    EXPECT_EQ(given().at(push).examples, applied.examples());
  }
}

void Simulation::OnHandled(uint32_t ps, const ShardRequest& request) {
  const auto* resolve = std::get_if<proto::ResolveRequest>(&request);
  if (resolve == nullptr) return;
  for (const proto::WorkerLife& life : resolve->lives()) {
    lives_.at(LifeOf(life)).resolved.insert(ps);
  }
}

void Simulation::Apply(uint32_t ps, const proto::ApplyRequest& request,
                       Reply<proto::ApplyResponse> reply) {
  const WorkerLife life = LifeOf(request.sender());
  ++parked_applies_[{ps, life}];
  shards[ps]->Apply(request,
                    [this, ps, life, reply = std::move(reply)](
                        absl::StatusOr<proto::ApplyResponse> r) mutable {
                      --parked_applies_[{ps, life}];
                      reply(std::move(r));
                    });
}

void Simulation::OnTick() {
  if (coordinator->state().phase() != proto::TRAINING) return;
  for (const auto& [where, parked] : parked_applies_) {
    const auto& [ps, life] = where;
    EXPECT_TRUE(parked == 0 || lives_.at(life).resolved.count(ps) == 0)
        << life.ToString() << " waits at ps " << ps << " for nothing";
  }
  for (const auto& shard : shards) {
    EXPECT_LE(shard->staged_bytes(), MostStaged(scenario));
  }
  if (waiting_for_tickets.empty()) return;
  // Those of pushes that do not count came back.
  const uint64_t left =
      scenario.tickets + Status().pushes().fenced() - given().size();
  const std::set<WorkerLife> live = LiveOnes();
  for (const PushId& push : waiting_for_tickets) {
    EXPECT_TRUE(live.count(push.from) > 0)
        << push.ToString() << " waits for nothing";
    EXPECT_TRUE(left == 0 || !MayBegin(lives_.at(push.from), push))
        << push.ToString() << " waits for a ticket that it may have";
  }
}

// When the job is DONE: all that every shard holds is the pushes that count.
void Simulation::CheckValues() {
  const Scenario& s = scenario;
  ASSERT_EQ(counted.size(), s.tickets);
  std::vector<Given> made_of;
  std::set<uint64_t> spent;
  for (const PushId& push : counted) {
    made_of.push_back(given().at(push));
    ASSERT_TRUE(spent.insert(made_of.back().ticket).second)
        << "ticket " << made_of.back().ticket << " is spent twice";
  }
  for (const auto& [push, by] : given()) {
    ASSERT_TRUE(by.accepted_by.empty() || counted.count(push) > 0)
        << push.ToString() << " was told ACCEPTED, and does not count";
  }

  std::set<std::pair<std::string, uint32_t>> places;
  for (const proto::Slice& slice : slices) {
    places.emplace(slice.variable(), slice.ps());
  }
  const Values values = ReadAll();
  ASSERT_EQ(places.size(), values.size() * s.num_ps)
      << "not every ps has a row of each variable";
  ExpectMadeOf(job, made_of, values);
  // A live worker has at most depth + 1 pushes that it does not know to be
  // booked when it sends; as many may have come after the last that a machine
  // heard of.
  const size_t most_kept = 2 * s.workers * (s.depth + 1);
  ASSERT_LE(coordinator->verdicts_kept(), most_kept);
  for (const auto& shard : shards) {
    ASSERT_EQ(shard->version().value(), s.tickets);
    ASSERT_EQ(shard->staged_bytes(), 0);
    ASSERT_LE(shard->verdicts_kept(), most_kept);
  }
}

void Simulation::CheckStatus() {
  const proto::GetStatusResponse status = Status();
  std::map<TaskId, std::pair<uint64_t, uint64_t>> expected, told;
  uint64_t examples = 0;
  uint64_t not_finite = 0;
  for (const PushId& push : counted) {
    auto& [pushes, of_worker] = expected[push.from.worker];
    ++pushes;
    if (given().at(push).not_finite) ++not_finite;
    of_worker += given().at(push).examples;
    examples += given().at(push).examples;
  }
  for (const proto::WorkerCounts& worker : status.workers()) {
    told[{worker.worker().job(), worker.worker().index()}] = {
        worker.pushes(), worker.examples()};
  }
  EXPECT_EQ(told, expected);
  EXPECT_EQ(status.examples(), examples);
  EXPECT_EQ(status.global_step(), scenario.tickets);
  EXPECT_EQ(status.pushes().accepted(), scenario.tickets);
  EXPECT_EQ(status.pushes().not_finite(), not_finite);
  // The others' tickets were returned.
  EXPECT_EQ(status.pushes().fenced(), given().size() - counted.size());
  EXPECT_EQ(status.pushes().stale() + status.pushes().duplicate() +
                status.pushes().aborted(),
            0u);
  uint64_t by_staleness = 0;
  for (const proto::StalenessCount& of : status.staleness()) {
    by_staleness += of.pushes();
    EXPECT_LT(of.staleness(), scenario.tickets);
  }
  EXPECT_EQ(by_staleness, scenario.tickets);
}

class AsynchronousSimulationTest : public ::testing::TestWithParam<Scenario> {};

TEST_P(AsynchronousSimulationTest, PromisesHoldUnderEverySchedule) {
  constexpr uint64_t kSchedules = 500;
  const Scenario scenario = GetParam();
  // In all schedules.
  uint64_t fenced = 0, resolved = 0, handed_out_again = 0, refused = 0,
           refused_applies = 0;
  for (uint64_t seed = 1; seed <= kSchedules; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Simulation sim(scenario, seed);
    for (uint32_t i = 0; i < scenario.workers; ++i) {
      sim.StartWorker(i, absl::Milliseconds(sim.scheduler.Random(500)));
    }
    sim.Start();

    const absl::Time bound = sim.scheduler.Now() + absl::Minutes(20);
    bool checked = false;
    while (!(sim.all_gone() && sim.coordinator->finished()) &&
           sim.coordinator->state().phase() != proto::FAILED &&
           sim.scheduler.Now() < bound && !HasFailure()) {
      ASSERT_TRUE(sim.scheduler.RunOne());
      if (!checked && sim.coordinator->state().phase() == proto::DONE) {
        sim.CheckValues();
        checked = true;
      }
    }
    ASSERT_FALSE(HasFailure());
    ASSERT_LT(sim.scheduler.Now(), bound)
        << "hangs: " << sim.Status().DebugString();
    ASSERT_EQ(sim.coordinator->state().phase(), proto::DONE)
        << sim.coordinator->state().reason();
    sim.CheckStatus();
    ASSERT_FALSE(HasFailure());
    ASSERT_THAT(sim.network.unanswered(), ::testing::IsEmpty())
        << "calls are parked for ever";
    // wait_ms at most, and a tick.
    ASSERT_LE(sim.network.longest_wait(), absl::Milliseconds(3100));
    if (scenario.mishaps == 0) {
      // Between the pull and the application of worker i's k-th push, each
      // other worker's clock goes from k - 1 - s, or above, to at most k + s;
      // of its own there are those in the pipeline.
      const uint64_t of_others =
          scenario.bound.has_value() ? 2 * *scenario.bound + 1 : 1'000'000;
      ASSERT_LE(sim.max_staleness,
                (scenario.workers - 1) * of_others + scenario.depth - 1);
    }
    fenced += sim.fenced;
    resolved += sim.resolved_pushes;
    handed_out_again += sim.given().size() - sim.counted.size();
    refused += sim.refused_for_room;
    refused_applies += sim.refused_applies;
  }
  if (scenario.mishaps > 0) {
    EXPECT_GT(fenced, 0u);
    EXPECT_GT(resolved, 0u);
    EXPECT_GT(handed_out_again, 0u);
  } else {
    EXPECT_EQ(fenced + resolved + handed_out_again, 0u);
  }
  if (scenario.extra_places.has_value()) {
    EXPECT_GT(refused, 0u);
  }
  EXPECT_EQ(refused_applies > 0, scenario.faulty);
}

constexpr Faults kNone = {0, 0};
constexpr Faults kSome = {50, 100};
constexpr Faults kMany = {100, 300};
constexpr std::nullopt_t kUnbounded = std::nullopt;

INSTANTIATE_TEST_SUITE_P(
    Scenarios, AsynchronousSimulationTest,
    ::testing::ValuesIn(std::vector<Scenario>{
        {1, 1, 1, kUnbounded, kNone, 0, false, {}, 20},
        {2, 1, 3, kUnbounded, kSome},
        {2, 2, 1, kUnbounded, kSome},
        {3, 4, 2, kUnbounded, kMany, 0, true},
        {2, 2, 1, 0, kSome},
        {2, 3, 3, 0, kSome},
        {1, 4, 2, 1, kSome, 0, true},
        {2, 3, 3, 3, kSome},
        {1, 1, 1, kUnbounded, kNone, 2},
        {2, 1, 2, kUnbounded, kSome, 3},
        {2, 2, 1, kUnbounded, kSome, 3},
        {2, 3, 3, kUnbounded, kSome, 4, true},
        {3, 4, 2, kUnbounded, kMany, 4},
        {2, 2, 2, 0, kSome, 3},
        {2, 3, 1, 1, kSome, 3, true},
        {3, 4, 3, 3, kSome, 4},
        // Little memory.
        {2, 4, 3, kUnbounded, kSome, 0, false, 0},
        {2, 1, 3, kUnbounded, kSome, 3, false, 0},
        {2, 3, 3, 1, kSome, 3, true, 0},
        {3, 2, 3, kUnbounded, kSome, 3, false, 1},
        // Faulty workers [P2, P3].
        {2, 2, 1, kUnbounded, kSome, 3, false, {}, 12, true},
        {3, 3, 3, 3, kSome, 4, true, {}, 12, true},
    }),
    [](const auto& info) { return Name(info.param); });

}  // namespace
}  // namespace holdfast
