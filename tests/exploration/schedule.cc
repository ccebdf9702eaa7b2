// SPDX-License-Identifier: Apache-2.0
#include "tests/exploration/schedule.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/job/job_phase.h"
#include "tests/exploration/stranger.h"
#include "tests/exploration/transcript.h"
#include "tests/world/set_command.h"

namespace holdfast::exploration {

using sim::DiskFault;
using sim::Message;
using sim::Mix;
using sim::Node;
using sim::OpenCall;
using sim::Process;
using sim::World;

namespace {

// Limits within which a run must end.
constexpr int kMaxRounds = 200;
constexpr int kMaxEvents = 5000;
// Rounds after which a process that is gone for good would be reborn.
constexpr int kForGood = 2 * kMaxRounds;

// Delays shorter than a round, between the messages in flight and those that
// follow from them.
constexpr Delay kHops[] = {{1, 0}, {4, 0}, {12, 0}};
// Longer delays.
constexpr Delay kHolds[] = {{0, 1}, {0, 2}, {0, 1 + kLate}};
// Delays into the next generation.
constexpr int kMaxHops = 64;
constexpr Delay kOutliving[] = {{0, 0, true}, {4, 0, true}, {12, 0, true}};

std::string Text(const Delay& delay) {
  if (delay.until_next_generation) {
    return absl::StrCat(delay.hops, " hops of the next generation");
  }
  return delay.hold > 0 ? absl::StrCat(delay.hold, " quiet moments")
                        : absl::StrCat(delay.hops, " hops");
}

std::string NameOf(Process process) {
  return process < sim::kFirstWorkerProcess
             ? absl::StrCat("ps ", process)
             : absl::StrCat("worker ", process - sim::kFirstWorkerProcess);
}

}  // namespace

std::string Choice::ToString() const {
  switch (kind) {
    case kNext:
      return "next";
    case kDeliver:
      return absl::StrCat("overtaking ", serial);
    case kSlow:
      return absl::StrCat("held up ", Text(delay));
    case kTime:
      return "time passes";
    case kLose:
      return "lost";
    case kTwice:
      return absl::StrCat("twice, again after ", Text(delay));
    case kLateArrival:
      return absl::StrCat("late, after ", Text(delay));
    case kCrash:
      return absl::StrCat("crash of ", NameOf(process), ", back after ", rounds,
                          " rounds");
    case kStepDown:
      return absl::StrCat(NameOf(process), " steps down");
    case kExpire:
      return absl::StrCat("the lease of ", NameOf(process), " runs out");
    case kDiskFails:
      return rounds == 0 ? "the disk fails"
                         : "the disk fails after it was done";
    case kForged:
      return absl::StrCat("forgery ", serial, " for ", NameOf(process));
    case kStop:
      return "the job is to stop";
    case kNotLent:
      return rounds == 0 ? "not lent" : "not lent, nor anything else";
  }
  return "";
}

bool Budget::Covers(const Budget& other) const {
  return orders >= other.orders && messages >= other.messages &&
         crashes >= other.crashes && expiries >= other.expiries &&
         disk >= other.disk && stops >= other.stops && loans >= other.loans;
}

Schedule::Schedule(const Scenario& scenario, Tracing tracing)
    : scenario_(scenario),
      tracing_(tracing),
      world_(scenario_.job, this, scenario_.make_worker),
      calls_made_(scenario_.faults.size()) {
  world_.AddObserver(this);
  world_.CheckShardsAtEachEvent();
  const uint32_t evaluators = scenario_.job.has_evaluator() ? 1 : 0;
  for (uint32_t i = 0; i < scenario_.job.num_workers + evaluators; ++i) {
    world_.AddWorker(i);
  }
  processes_.resize(world_.num_processes());
  for (size_t process = 0; process < processes_.size(); ++process) {
    if (process >= scenario_.job.num_ps && !IsWorker(process)) {
      processes_[process].for_good = true;
      continue;
    }
    world_.Start(process);
  }
}

// ---- The operator ----

template <typename Request>
void Schedule::AskUntilAnswered(std::function<void()> then,
                                const Request& request) {
  world_.Call<Request>(sim::kOperator, sim::kCoordinator, request,
                       [this, then, request](const auto& response) {
                         if (response.ok()) return then();
                         world_.After(
                             sim::kOperator, kRound, [this, then, request] {
                               AskUntilAnswered<Request>(then, request);
                             });
                       });
}

void Schedule::AskForCheckpoint(std::optional<uint64_t> step) {
  proto::CheckpointRequest request;
  if (step.has_value()) request.set_step(*step);
  request.set_wait_ms(absl::ToInt64Milliseconds(scenario_.job.park));
  world_.Call<proto::CheckpointRequest>(
      sim::kOperator, sim::kCoordinator, request,
      [this, step](
          const absl::StatusOr<proto::CheckpointResponse>& response) mutable {
        if (response.ok()) {
          step = response->step();
          if (response->durable_step() >= response->step()) return;
        }
        world_.After(sim::kOperator, kRound,
                     [this, step] { AskForCheckpoint(step); });
      });
}

// ---- Callbacks of the world ----

void Schedule::OnSent(Message* message, OpenCall* call) {
  if (call == nullptr || World::IsLocal(message->from, message->to)) return;
  for (size_t i = 0; i < scenario_.faults.size(); ++i) {
    const RpcFault& fault = scenario_.faults[i];
    if (fault.rpc != *message->rpc ||
        message->from != fault.from.value_or(message->from) ||
        message->to != fault.to.value_or(message->to) ||
        ++calls_made_[i] != fault.occurrence) {
      continue;
    }
    return Befall(fault, message, call);
  }
}

void Schedule::Befall(const RpcFault& fault, Message* message, OpenCall* call) {
  if (tracing()) Trace(absl::StrCat("the fault: ", World::Describe(*message)));
  switch (fault.kind) {
    case RpcFault::kLostBefore:
      world_.Fail(message, absl::UnavailableError("it was lost"));
      break;
    case RpcFault::kLostAfter:
      call->answer_is_lost = true;
      break;
    case RpcFault::kLate:
      HoldUp(fault.delay, world_.Repeat(*message));
      world_.Fail(message, absl::DeadlineExceededError("no answer"));
      break;
    case RpcFault::kTwice:
      HoldUp(fault.delay, world_.Repeat(*message));
      break;
    case RpcFault::kOutOfOrder:
      HoldUp(fault.delay, message);
      break;
    case RpcFault::kAnswerOutOfOrder:
      call->answer_is_held = true;
      break;
  }
}

void Schedule::TraceDelivery(const Message& message) {
  Trace(tracing_ == Tracing::kTranscript ? TranscriptLine(message)
                                         : World::Describe(message));
}

DiskFault Schedule::NextDiskFault(bool is_read) {
  return std::exchange(disk_fault_, DiskFault::kNone);
}

void Schedule::OnExit(Process process, bool for_good) {
  const bool over =
      !scenario_.job.archive || world_.disk().journal().finished();
  processes_[process].for_good = for_good && over;
  // A process that leaves a job that was stopped is started again a while
  // later.
  processes_[process].rounds_left = for_good && !over ? 1 : 0;
}

// The operator starts the job again.
void Schedule::OnStopped() {
  Trace("all have ended, and are started again");
  for (size_t p = 0; p < processes_.size(); ++p) {
    const Process process = p;
    if (process >= static_cast<Process>(world_.num_ps()) &&
        !IsWorker(process)) {
      continue;
    }
    if (world_.IsAlive(process)) world_.Crash(process);
    processes_[p] = ProcessState();
  }
}

void Schedule::OnSent(Node from, Node to,
                      const google::protobuf::Message& request) {
  if (!scenario_.stranger) return;
  if (const auto* restore = sim::As<proto::RestoreRequest>(request)) {
    restores_[World::ProcessOf(to)] = *restore;
  }
}

void Schedule::OnHeard(Node by, const google::protobuf::Message& response) {
  if (const auto* placement = sim::As<proto::GetPlacementResponse>(response);
      placement != nullptr && placement->ready()) {
    const bool first = !std::exchange(variables_ready_, true);
    if (first && scenario_.job.changes_rate) sim::SetRate(&world_, 1);
    if (first && scenario_.operator_asks) {
      AskUntilAnswered<proto::GetStatusRequest>(
          [this] { AskForCheckpoint(std::nullopt); });
      AskUntilAnswered<proto::GetEventsRequest>([] {});
      AskUntilAnswered<proto::GetHistoryRequest>([] {});
      AskUntilAnswered<proto::ReportTraceRequest>([] {});
      proto::TraceRequest trace;
      trace.set_action(proto::TraceRequest::BEGIN);
      trace.set_trace(7);
      trace.set_steps(1);
      AskUntilAnswered([] {}, trace);
    }
    if (!std::exchange(stop_begun_, true) && scenario_.operator_stops) {
      stop_.Ask();
    }
  }
  if (scenario_.expire_after_applies == 0 || by != sim::kFirstWorker + 1) {
    return;
  }
  if (const auto* applied = sim::As<proto::ApplyResponse>(response);
      applied != nullptr && applied->verdict() == proto::ACCEPTED) {
    expire_due_ = ++applies_ == scenario_.expire_after_applies;
  }
}

// ---- Choices ----

void Schedule::HoldUp(const Delay& delay, Message* message) {
  if (!delay.until_next_generation) {
    message->depth += delay.hops;
    message->hold = delay.hold;
    return;
  }
  const auto generation =
      static_cast<int>(world_.disk().journal().generation());
  message->hold = -(generation * kMaxHops + delay.hops);
}

void Schedule::ReleaseOutliving() {
  if (!scenario_.calls_outlive_generation ||
      world_.phase() != proto::TRAINING) {
    return;
  }
  const auto generation =
      static_cast<int>(world_.coordinator()->generation().value());
  for (const auto& message : world_.in_flight()) {
    if (message->hold >= 0 || generation <= -message->hold / kMaxHops) continue;
    const Message* const head = Head();
    Message* const released = world_.Mutable(message.get());
    released->depth = (head == nullptr ? world_.MaxDepth() : head->depth) +
                      -message->hold % kMaxHops;
    released->hold = 0;
    if (tracing()) Trace("what was held since the generation before arrives");
  }
}

bool Schedule::IsOrdered(Node from, Node to) {
  // The thread of the coordinator's archive and the strands of ps 0 keep the
  // order.
  return World::IsLocal(from, to) &&
         (from == sim::kCoordinator || to == sim::kCoordinator);
}

bool Schedule::Precedes(const Message& a, const Message& b) {
  return std::tie(a.depth, a.from, a.order, a.stray) <
         std::tie(b.depth, b.from, b.order, b.stray);
}

bool Schedule::Waits(const Message& message) const {
  return IsOrdered(message.from, message.to) &&
         std::any_of(world_.in_flight().begin(), world_.in_flight().end(),
                     [&](const auto& m) {
                       return m->from == message.from && m->to == message.to &&
                              m->order < message.order;
                     });
}

std::vector<const Message*> Schedule::Deliverable() const {
  std::vector<const Message*> all;
  for (const auto& message : world_.in_flight()) {
    if (message->hold == 0 && !Waits(*message)) all.push_back(message.get());
  }
  std::sort(all.begin(), all.end(), [](const Message* a, const Message* b) {
    return Precedes(*a, *b);
  });
  return all;
}

const Message* Schedule::Head() const {
  const Message* head = nullptr;
  for (const auto& message : world_.in_flight()) {
    if (message->hold == 0 && (head == nullptr || Precedes(*message, *head)) &&
        !Waits(*message)) {
      head = message.get();
    }
  }
  return head;
}

bool Schedule::IsIncluded(const Delay& delay) const {
  return !scenario_.few_delays || delay.hops == 4 || delay.hold == 1;
}

// Whether the job continues without one worker.
bool Schedule::MayStayAway() const {
  return (scenario_.job.continues() || scenario_.job.asynchronous()) &&
         std::none_of(processes_.begin(), processes_.end(),
                      [](const ProcessState& process) {
                        return process.rounds_left > kLate;
                      });
}

std::vector<Choice> Schedule::Alternatives(const Budget& budget) const {
  std::vector<Choice> all;
  if (scenario_.starts_undisturbed && !variables_ready_) return all;
  if (scenario_.calls_outlive_generation) {
    return AlternativesOfOutliving(budget);
  }
  const std::vector<const Message*> messages = Deliverable();
  if (budget.orders > 0 && !messages.empty()) {
    // Overtaking messages to other nodes changes nothing: what follows from a
    // message has its place in the order whenever the message is delivered.
    for (size_t i = 1; i < messages.size(); ++i) {
      if (std::any_of(messages.begin(), messages.begin() + i,
                      [&](const Message* earlier) {
                        return earlier->to == messages[i]->to;
                      })) {
        all.push_back({Choice::kDeliver, messages[i]->serial});
      }
    }
    for (const Delay& delay : kHops) {
      if (IsIncluded(delay)) all.push_back({Choice::kSlow, 0, delay});
    }
    all.push_back({Choice::kSlow, 0, kHolds[0]});
    all.push_back({Choice::kTime});
  }
  if (!messages.empty()) {
    const Message& head = *messages.front();
    const bool on_network = !World::IsLocal(head.from, head.to) && !head.stray;
    if (budget.messages > 0 && on_network) {
      all.push_back({Choice::kLose});
      if (head.is_request) {
        all.push_back({Choice::kTwice});
        for (const auto& delays : {kHops, kHolds}) {
          for (int i = 0; i < 3; ++i) {
            if (!IsIncluded(delays[i])) continue;
            all.push_back({Choice::kTwice, 0, delays[i]});
            all.push_back({Choice::kLateArrival, 0, delays[i]});
          }
        }
      }
    }
    if (budget.loans > 0 && on_network &&
        world_.MustBeLent(head.tensor_bytes())) {
      all.push_back({Choice::kNotLent, 0, {}, 0, 0});
      all.push_back({Choice::kNotLent, 0, {}, 0, 1});
    }
    if (budget.disk > 0 && head.to == sim::kDisk && head.is_request &&
        *head.rpc != "RemoveOthers" && *head.rpc != "SetAside") {
      all.push_back({Choice::kDiskFails, 0, {}, 0, 0});
      if (head.from == sim::kCoordinator || *head.rpc == "LoadShare") {
        all.push_back({Choice::kDiskFails, 0, {}, 0, 1});
      }
    }
  }
  if (budget.messages > 0) {
    for (const auto& [ps, restore] : restores_) {
      if (world_.shard(ps) == nullptr) continue;
      const size_t count = Forgeries(world_, ps, restore).size();
      for (size_t i = 0; i < count; ++i) {
        all.push_back({Choice::kForged, i, {}, static_cast<Process>(ps)});
      }
    }
  }
  for (size_t p = 0; p < processes_.size(); ++p) {
    const Process process = p;
    if (!world_.IsAlive(process)) continue;
    const std::vector<Node> nodes = World::NodesOf(process);
    // A process that dies before it is given a message is not changed by the
    // message.
    const bool was_given =
        world_.last_to() == World::kNobody ||
        std::find(nodes.begin(), nodes.end(), world_.last_to()) != nodes.end();
    // Without checkpoints, a job does not survive the loss of a ps.
    if (budget.crashes > 0 && was_given &&
        (scenario_.job.archive || IsWorker(process))) {
      all.push_back({Choice::kCrash, 0, {}, process, 0});
      all.push_back({Choice::kCrash, 0, {}, process, kLate});
      if (IsWorker(process) && MayStayAway()) {
        all.push_back({Choice::kCrash, 0, {}, process, kForGood});
      }
    }
    if (!IsWorker(process) ||
        world_.worker(process)->sender().incarnation() == 0) {
      continue;
    }
    if (budget.crashes > 0 && was_given) {
      all.push_back({Choice::kStepDown, 0, {}, process});
    }
    if (budget.expiries > 0 && world_.coordinator() != nullptr &&
        !IsEnd(world_.phase())) {
      all.push_back({Choice::kExpire, 0, {}, process});
    }
  }
  if (budget.stops > 0 && world_.coordinator() != nullptr &&
      !IsEnd(world_.phase()) &&
      (world_.last_to() == World::kNobody ||
       world_.last_to() == sim::kCoordinator)) {
    all.push_back({Choice::kStop});
  }
  return all;
}

std::vector<Choice> Schedule::AlternativesOfOutliving(
    const Budget& budget) const {
  std::vector<Choice> all;
  const Message* const head = Head();
  if (budget.messages > 0 && head != nullptr && head->is_request &&
      !head->stray && !World::IsLocal(head->from, head->to)) {
    for (const Delay& delay : kOutliving) {
      all.push_back({Choice::kTwice, 0, delay});
    }
  }
  const bool holds =
      std::any_of(world_.in_flight().begin(), world_.in_flight().end(),
                  [](const auto& message) { return message->hold < 0; });
  if (!holds || budget.crashes == 0) return all;
  for (uint32_t ps = 0; ps < scenario_.job.num_ps; ++ps) {
    const auto process = static_cast<Process>(ps);
    if (world_.IsAlive(process) &&
        World::ProcessOf(world_.last_to()) == process) {
      all.push_back({Choice::kCrash, 0, {}, process, 0});
    }
  }
  return all;
}

void Schedule::Take(const Choice& choice, Budget* budget) {
  Budget none;
  if (budget == nullptr) budget = &none;
  if (tracing() && choice.kind != Choice::kNext) Trace(choice.ToString());
  switch (choice.kind) {
    case Choice::kNext:
      if (const Message* head = Head(); head != nullptr) {
        world_.Deliver(head);
      } else {
        Quiet();
      }
      break;
    case Choice::kDeliver:
      --budget->orders;
      world_.Deliver(world_.Find(choice.serial));
      break;
    case Choice::kSlow:
      --budget->orders;
      HoldUp(choice.delay, world_.Mutable(Head()));
      break;
    case Choice::kTime:
      --budget->orders;
      PassTime();
      break;
    case Choice::kLose:
      --budget->messages;
      world_.Fail(Head(), absl::UnavailableError("it was lost"));
      break;
    case Choice::kTwice:
      --budget->messages;
      HoldUp(choice.delay, world_.Repeat(*Head()));
      break;
    case Choice::kLateArrival: {
      --budget->messages;
      const Message* const head = Head();
      HoldUp(choice.delay, world_.Repeat(*head));
      world_.Fail(head, absl::DeadlineExceededError("no answer"));
      break;
    }
    case Choice::kCrash:
      --budget->crashes;
      world_.Crash(choice.process);
      processes_[choice.process].rounds_left = choice.rounds;
      break;
    case Choice::kStepDown:
      --budget->crashes;
      world_.MixIntoHistory(World::NodesOf(choice.process).front(), 6);
      world_.worker(choice.process)->StepDown();
      break;
    case Choice::kExpire:
      --budget->expiries;
      Expire(choice.process);
      break;
    case Choice::kDiskFails:
      --budget->disk;
      disk_fault_ = choice.rounds == 0 ? DiskFault::kBeforeItIsDone
                                       : DiskFault::kAfterItWasDone;
      world_.MixIntoHistory(sim::kDisk, 7 + choice.rounds);
      world_.Deliver(Head());
      break;
    case Choice::kForged:
      --budget->messages;
      Forge(choice);
      break;
    case Choice::kStop:
      --budget->stops;
      stop_.Ask();
      world_.Deliver(world_.in_flight().back().get());
      break;
    case Choice::kNotLent:
      --budget->loans;
      RefuseLoan(choice.rounds > 0);
      break;
  }
  world_.AfterEvent();
  if (std::exchange(expire_due_, false) && world_.coordinator() != nullptr) {
    Trace("the lease of worker 1 runs out");
    Expire(sim::kFirstWorkerProcess + 1);
    world_.AfterEvent();
  }
  ReleaseOutliving();
  if (++events_ > kMaxEvents) world_.Violate("it does not end");
}

void Schedule::Forge(const Choice& choice) {
  const auto ps = static_cast<uint32_t>(choice.process);
  const ShardRequest forged =
      Forgeries(world_, ps, restores_.at(ps)).at(choice.serial);
  std::visit(
      [&](const auto& request) {
        world_.SendStray(sim::kOperator, sim::ShardNode(ps), request);
      },
      forged);
  world_.Deliver(world_.in_flight().back().get());
}

// For the message at the head.
void Schedule::RefuseLoan(bool until_a_second_passes) {
  const Message* const head = Head();
  if (until_a_second_passes) {
    unlinked_.insert(head->is_request ? head->from : head->to);
  }
  if (head->is_request) {
    return world_.Fail(head, absl::OutOfRangeError("it cannot be lent"));
  }
  values_not_lent_ = true;
  world_.Deliver(head);
  values_not_lent_ = false;
}

// Called when nothing is in flight.
void Schedule::Quiet() {
  bool arrived = false;
  for (const auto& message : world_.in_flight()) {
    if (message->hold != 1) continue;
    world_.Mutable(message.get())->hold = 0;
    arrived = true;
  }
  if (arrived) return Trace("what was held back arrives");
  for (size_t p = 0; p < processes_.size(); ++p) {
    if (world_.IsAlive(p) || processes_[p].for_good ||
        processes_[p].rounds_left > 0) {
      continue;
    }
    world_.NoteLast(World::NodesOf(p).front());
    return world_.Start(p);
  }
  PassTime();
}

void Schedule::PassTime() {
  world_.SetTime(world_.Now() + kRound);
  Trace("a second passes");
  if (++rounds_ > kMaxRounds) {
    return world_.Violate(
        absl::StrCat("it hangs: ", world_.coordinator() == nullptr
                                       ? ""
                                       : world_.Status().ShortDebugString()));
  }
  for (const auto& message : world_.in_flight()) {
    if (message->hold > 1) --world_.Mutable(message.get())->hold;
  }
  for (ProcessState& process : processes_) {
    if (process.rounds_left > 0) --process.rounds_left;
  }
  unlinked_.clear();
  world_.SetDepths(world_.MaxDepth());
  world_.MixIntoHistories(absl::ToUnixSeconds(world_.Now()));
  world_.Tick();
  world_.RunTimers();
  world_.NoteLast(World::kNobody);
}

// The other tasks renew their leases directly, without the network, so that the
// process does not hear anything.
void Schedule::Expire(Process expired) {
  const auto renew = [&](const proto::Sender& sender) {
    if (sender.incarnation() == 0) return;
    proto::RenewLeaseRequest request;
    *request.mutable_sender() = sender;
    world_.coordinator()->RenewLease(request, [](const auto&) {});
  };
  for (absl::Duration passed; passed <= scenario_.job.lease; passed += kRound) {
    world_.SetTime(world_.Now() + kRound);
    for (size_t p = 0; p < processes_.size(); ++p) {
      const Process process = p;
      if (!world_.IsAlive(process) || process == 0 || process == expired) {
        continue;
      }
      renew(IsWorker(process) ? world_.worker(process)->sender()
                              : world_.ps_sender(process));
    }
    world_.MixIntoHistories(Mix(expired, 5));
    world_.Tick();
  }
}

uint64_t Schedule::Fingerprint(const Budget& budget) const {
  // The last node that was given something determines who may crash.
  uint64_t all =
      Mix(world_.Fingerprint(),
          budget.crashes + budget.stops > 0 ? world_.last_to() + 1 : 0);
  for (const ProcessState& process : processes_) {
    all = Mix(all, process.rounds_left * 2 + process.for_good);
  }
  for (const Node client : unlinked_) all = Mix(all, client);
  return all;
}

}  // namespace holdfast::exploration
