// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/ticket_watch.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/job/task_id.h"

namespace holdfast {
namespace {

PushId PushOf(const proto::TakeTicketRequest& request) {
  return {sim::LifeOf(request.sender()), PushSequence(request.sequence())};
}

}  // namespace

TicketWatch::TicketWatch(sim::World* world, uint32_t depth,
                         std::optional<uint32_t> bound, int64_t most_staged)
    : world_(world), depth_(depth), bound_(bound), most_staged_(most_staged) {
  world->AddObserver(this);
}

void TicketWatch::Expect(bool holds, const PushId& push,
                         const std::string& otherwise) {
  if (!holds) world_->Violate(absl::StrCat(push.ToString(), " ", otherwise));
}

void TicketWatch::AfterEvent() {
  for (const auto& seen : std::exchange(seen_, {})) seen();
}

std::set<WorkerLife> TicketWatch::LiveOnes() const {
  const proto::GetStatusResponse status = world_->Status();
  std::set<WorkerLife> live;
  for (const proto::TaskStatus& task : status.tasks()) {
    if (task.task().job() != kWorkerJob || !task.alive()) continue;
    live.insert({{task.task().job(), task.task().index()},
                 Incarnation(task.incarnation())});
  }
  return live;
}

uint64_t TicketWatch::SlowestClock() const {
  std::optional<uint64_t> slowest;
  for (const WorkerLife& life : LiveOnes()) {
    const auto book = lives_.find(life);
    if (book == lives_.end()) continue;  // has just joined
    slowest =
        std::min(slowest.value_or(book->second.clock), book->second.clock);
  }
  return slowest.value_or(0);
}

bool TicketWatch::MayBegin(const Life& life, const PushId& push) const {
  const uint64_t lowest = life.held.empty()
                              ? push.sequence.value()
                              : life.held.begin()->sequence.value();
  if (push.sequence.value() - lowest > depth_) return false;
  return !bound_.has_value() ||
         life.clock + life.held.size() <= SlowestClock() + *bound_;
}

// [A1] A worker that joins later begins at the clock of the slowest.
void TicketWatch::OnJoined(const WorkerLife& life) {
  const uint64_t slowest = SlowestClock();
  if (const auto [it, fresh] = lives_.emplace(life, Life()); fresh) {
    it->second.clock = slowest;
  }
}

void TicketWatch::Count(const PushId& push) {
  if (!counted_.insert(push).second) return;
  Life& life = lives_.at(push.from);
  Expect(life.held.erase(push) == 1, push, "counts without a ticket");
  ++life.clock;
}

// `push` is the first push with the ticket, or gets it after others.
void TicketWatch::OnTaken(const PushId& push, uint64_t ticket) {
  if (!given_.emplace(push, ticket).second) return;
  Life& life = lives_.at(push.from);
  // The lease may have run out within the same tick, after that.
  Expect(MayBegin(life, push) || !IsLive(push.from), push,
         "gets a ticket although it is too far ahead");
  Expect(life.held.size() <= depth_, push, "has one ticket too many");
  life.held.insert(push);
  // [A5] The ticket had no holder, or has none any more on every shard.
  if (const auto before = holders_.find(ticket); before != holders_.end()) {
    const PushId& holder = before->second;
    Life& late = lives_.at(holder.from);
    Expect(counted_.count(holder) == 0, push, "gets a ticket that was spent");
    Expect(late.resolved.size() == world_->num_ps(), push,
           "gets a ticket that may still count with " + holder.ToString());
    late.held.erase(holder);
  }
  holders_.insert_or_assign(ticket, push);
}

void TicketWatch::OnSent(sim::Node from, sim::Node to,
                         const google::protobuf::Message& request) {
  if (const auto* fence = sim::As<proto::FenceRequest>(request)) {
    for (const proto::WorkerLife& life : fence->lives()) {
      fenced_.insert(sim::LifeOf(life));
    }
    seen_.push_back([this, fence = *fence] {
      for (const proto::WorkerLife& life : fence.lives()) {
        if (IsLive(sim::LifeOf(life))) {
          world_->Violate("a live worker is fenced");
        }
      }
    });
  }
  const auto* const resolve = sim::As<proto::ResolveRequest>(request);
  if (resolve == nullptr) return;
  for (const proto::AppliedPush& applied : resolve->applied()) {
    const PushId push{sim::LifeOf(applied.from()),
                      PushSequence(applied.sequence())};
    seen_.push_back([this, push] {
      if (counted_.count(push) == 0) ++resolved_pushes_;
      Count(push);
    });
    Expect(GivenOf(push).clip_factor == applied.clip_factor() &&
               GivenOf(push).examples == applied.examples(),
           push, "is resolved differently from what was given");
  }
}

void TicketWatch::OnArrival(sim::Node from, sim::Node to,
                            const google::protobuf::Message& request) {
  if (const auto* take = sim::As<proto::TakeTicketRequest>(request)) {
    const WorkerLife life = sim::LifeOf(take->sender());
    if (take->spent_size() > 0 && IsLive(life)) {
      for (const proto::SpentTicket& spent : take->spent()) {
        Count({life, PushSequence(spent.sequence())});
      }
    }
    waiting_.insert(PushOf(*take));
  }
  if (const auto* apply = sim::As<proto::ApplyRequest>(request)) {
    ++parked_applies_[{to, sim::LifeOf(apply->sender())}];
  }
  if (const auto* resolve = sim::As<proto::ResolveRequest>(request)) {
    for (const proto::WorkerLife& life : resolve->lives()) {
      lives_.at(sim::LifeOf(life)).resolved.insert(to - sim::ShardNode(0));
    }
  }
}

void TicketWatch::OnAnswered(sim::Node from, sim::Node to,
                             const google::protobuf::Message& request,
                             const google::protobuf::Message* response) {
  if (const auto* apply = sim::As<proto::ApplyRequest>(request)) {
    --parked_applies_[{to, sim::LifeOf(apply->sender())}];
  }
  if (const auto* take = sim::As<proto::TakeTicketRequest>(request)) {
    const PushId push = PushOf(*take);
    waiting_.erase(waiting_.find(push));
    if (response == nullptr) return;
    const auto& taken = *sim::As<proto::TakeTicketResponse>(*response);
    if (!taken.has_ticket()) return;
    Expect(fenced_.count(push.from) == 0, push, "is fenced, but gets a ticket");
    seen_.push_back([this, push, ticket = taken.ticket().index()] {
      OnTaken(push, ticket);
    });
  }
  if (const auto* join = sim::As<proto::RegisterRequest>(request)) {
    if (response == nullptr || join->sender().task().job() != kWorkerJob) {
      return;
    }
    const auto& joined = *sim::As<proto::RegisterResponse>(*response);
    if (joined.incarnation() == 0) return;
    seen_.push_back(
        [this, life = WorkerLife{sim::LifeOf(join->sender()).worker,
                                 Incarnation(joined.incarnation())}] {
          OnJoined(life);
        });
  }
}

void TicketWatch::OnHeard(sim::Node by,
                          const google::protobuf::Message& response) {
  const auto* const apply = sim::As<proto::ApplyResponse>(response);
  if (apply != nullptr && apply->verdict() == proto::ACCEPTED) {
    max_staleness_ = std::max(max_staleness_, apply->staleness());
  }
  const auto* const taken = sim::As<proto::TakeTicketResponse>(response);
  const proto::Verdict verdict = apply != nullptr   ? apply->verdict()
                                 : taken != nullptr ? taken->verdict()
                                                    : proto::ACCEPTED;
  if (verdict != proto::FENCED) return;
  const sim::Process process = sim::World::ProcessOf(by);
  if (IsLive(sim::LifeOf(world_->worker(process)->sender()))) {
    world_->Violate("a live worker is told FENCED");
  }
}

void TicketWatch::OnTick() {
  AfterEvent();
  if (world_->phase() != proto::TRAINING) return;
  for (const auto& [where, parked] : parked_applies_) {
    const auto& [node, life] = where;
    if (parked > 0 &&
        lives_.at(life).resolved.count(node - sim::ShardNode(0)) > 0) {
      world_->Violate(life.ToString() +
                      " waits in Apply although it is resolved");
    }
  }
  for (uint32_t ps = 0; ps < world_->num_ps(); ++ps) {
    if (world_->shard(ps)->staged_bytes() > most_staged_) {
      world_->Violate("more pushes are staged than there is room for");
    }
  }
  if (waiting_.empty()) return;
  // Tickets of pushes that do not count came back.
  const uint64_t left = world_->job().tickets() +
                        world_->Status().pushes().fenced() - given_.size();
  const std::set<WorkerLife> live = LiveOnes();
  for (const PushId& push : waiting_) {
    Expect(live.count(push.from) > 0, push,
           "waits for a ticket although it is not alive");
    Expect(left == 0 || !MayBegin(lives_.at(push.from), push), push,
           "waits for a ticket although it may have one");
  }
}

void TicketWatch::CheckValues() {
  const sim::Job& job = world_->job();
  if (counted_.size() != job.tickets()) {
    return world_->Violate(absl::StrCat(counted_.size(), " pushes count"));
  }
  std::vector<sim::Given> made_of;
  std::set<uint64_t> spent;
  for (const PushId& push : counted_) {
    made_of.push_back(GivenOf(push));
    Expect(spent.insert(made_of.back().ticket).second, push,
           "spends a ticket that was already spent");
  }
  for (const auto& [push, ticket] : given_) {
    Expect(!GivenOf(push).accepted || counted_.count(push) > 0, push,
           "was told ACCEPTED, but does not count");
  }
  if (world_->ReadAll() != sim::MadeOf(job, made_of)) {
    world_->Violate("the values are not made of the pushes that count");
  }
  // When it sends, a live worker has at most depth + 1 pushes that it does not
  // know to be booked; as many more may have arrived since the last message
  // that reached a machine.
  const size_t most_kept = 2 * job.num_workers * (depth_ + 1);
  bool keeps_more = world_->coordinator()->verdicts_kept() > most_kept;
  for (uint32_t ps = 0; ps < world_->num_ps(); ++ps) {
    const Shard& shard = *world_->shard(ps);
    keeps_more = keeps_more || shard.verdicts_kept() > most_kept ||
                 shard.staged_bytes() > 0;
    if (shard.version().value() != job.tickets()) {
      world_->Violate("a shard is at another version");
    }
  }
  if (keeps_more)
    world_->Violate("pushes are remembered that are no longer needed");
}

void TicketWatch::CheckStatus() {
  const proto::GetStatusResponse status = world_->Status();
  std::map<TaskId, std::pair<uint64_t, uint64_t>> expected, told;
  uint64_t examples = 0;
  uint64_t not_finite = 0;
  for (const PushId& push : counted_) {
    auto& [pushes, of_worker] = expected[push.from.worker];
    ++pushes;
    if (GivenOf(push).not_finite) ++not_finite;
    of_worker += GivenOf(push).examples;
    examples += GivenOf(push).examples;
  }
  for (const proto::WorkerCounts& worker : status.workers()) {
    told[{worker.worker().job(), worker.worker().index()}] = {
        worker.pushes(), worker.examples()};
  }
  uint64_t by_staleness = 0;
  bool in_bounds = true;
  for (const proto::StalenessCount& of : status.staleness()) {
    by_staleness += of.pushes();
    in_bounds = in_bounds && of.staleness() < world_->job().tickets();
  }
  const uint64_t tickets = world_->job().tickets();
  const proto::PushCounts& pushes = status.pushes();
  const bool agrees =
      told == expected && status.examples() == examples &&
      status.global_step() == tickets && pushes.accepted() == tickets &&
      pushes.not_finite() == not_finite &&
      // The tickets of the other pushes were returned.
      pushes.fenced() == given_.size() - counted_.size() &&
      pushes.stale() + pushes.duplicate() + pushes.aborted() == 0 &&
      by_staleness == tickets && in_bounds;
  if (!agrees) {
    world_->Violate(absl::StrCat("the status says ", status.DebugString()));
  }
}

}  // namespace holdfast
