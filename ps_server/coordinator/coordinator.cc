#include "ps_server/coordinator/coordinator.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/placement.h"
#include "common/rpc_limits.h"
#include "common/shape.h"
#include "google/protobuf/util/message_differencer.h"
#include "ps_server/coordinator/parked.h"
#include "ps_server/coordinator/schedule.h"
#include "ps_server/request.h"
#include "ps_server/shard/memory_plan.h"

namespace holdfast {
namespace {

// A wait shorter than this is the normal course of a step, and not told to
// people.
constexpr absl::Duration kLate = absl::Seconds(2);
// Before a shard that refused a connection is tried again.
constexpr absl::Duration kRetryAfter = absl::Milliseconds(200);
constexpr uint32_t kMaxSeatsPerWorker = 1024;

// The message or its answer may have been lost; the same again may succeed.
bool WorthRetrying(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsCancelled(status);
}

float ClipFactorOf(const proto::ContributeRequest& request) {
  return request.has_clip_factor() ? request.clip_factor() : 1.0f;
}

}  // namespace

Coordinator::Coordinator(const Options& options, const Clock* clock,
                         ShardLinks* links)
    : options_(options),
      clock_(clock),
      links_(links),
      begun_(clock->Now()),
      last_tick_(begun_),
      ps_addresses_(options.num_ps),
      memory_limits_(options.num_ps) {
  state_.set_phase(proto::STARTING);
  ps_addresses_[0] = options.address;
  memory_limits_[0] = options.memory_limit_bytes;
}

// ---- Who is who ----

bool Coordinator::IsWorker(const TaskId& task) const {
  return task.job == kWorkerJob || task.job == kChiefJob;
}

TaskId Coordinator::WorkerOfReplica(uint32_t replica) const {
  if (!options_.has_chief) return {kWorkerJob, replica};
  return replica == 0 ? TaskId{kChiefJob, 0} : TaskId{kWorkerJob, replica - 1};
}

uint32_t Coordinator::ReplicaOf(const TaskId& worker) const {
  if (!options_.has_chief) return worker.index;
  return worker.job == kChiefJob ? 0 : worker.index + 1;
}

absl::Status Coordinator::CheckTask(const TaskId& task) const {
  if (task == TaskId{kPsJob, 0}) {
    return absl::AlreadyExistsError(
        "/job:ps/task:0 is this coordinator's own task");
  }
  if (task.job == kPsJob && task.index < options_.num_ps) {
    return absl::OkStatus();
  }
  if (task.job == kChiefJob && options_.has_chief && task.index == 0) {
    return absl::OkStatus();
  }
  const uint32_t plain_workers =
      options_.num_workers - (options_.has_chief ? 1 : 0);
  if (task.job == kWorkerJob && task.index < plain_workers) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      task.ToString(), " is not in the cluster of /job:ps/task:0, which has ",
      options_.num_ps, " ps, ", plain_workers, " worker and ",
      options_.has_chief ? 1 : 0, " chief tasks"));
}

std::string Coordinator::Describe(const TaskId& task) const {
  const auto session = sessions_.find(task);
  if (session == sessions_.end()) {
    return absl::StrCat(task.ToString(), " (not joined)");
  }
  return absl::StrCat(task.ToString(), " (", session->second.process, ")");
}

absl::StatusOr<Coordinator::Session*> Coordinator::FindSession(
    const proto::Sender& sender) {
  const TaskId task = ToTaskId(sender.task());
  if (sender.generation() != generation_.value()) {
    return absl::AbortedError(absl::StrCat(
        task.ToString(), " speaks in generation ", sender.generation(),
        ", the job is in ", generation_.value()));
  }
  const auto session = sessions_.find(task);
  if (session == sessions_.end() ||
      session->second.incarnation.value() != sender.incarnation()) {
    return absl::NotFoundError(
        absl::StrCat(task.ToString(), " has no session with incarnation ",
                     sender.incarnation(), ": register first"));
  }
  return &session->second;
}

absl::Status Coordinator::CheckDigests(const TaskId& task,
                                       const proto::RegisterRequest& request) {
  if (!digests_from_.has_value()) {
    digests_from_ = task;
    job_digest_ = request.job_digest();
    data_digest_ = request.data_digest();
    return absl::OkStatus();
  }
  const auto compare = [&](const char* what, const std::string& mine,
                           const std::string& theirs) {
    if (mine == theirs) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat(task.ToString(), " has ", what, " ", mine, ", ",
                     digests_from_->ToString(), " has ", theirs,
                     " (SHA-256): start all workers with the same"));
  };
  if (absl::Status status =
          compare("job file", request.job_digest(), job_digest_);
      !status.ok()) {
    return status;
  }
  return compare("data", request.data_digest(), data_digest_);
}

void Coordinator::Register(const proto::RegisterRequest& request,
                           Reply<proto::RegisterResponse> reply) {
  const TaskId task = ToTaskId(request.sender().task());
  if (request.protocol_version() != kProtocolVersion) {
    return reply(absl::FailedPreconditionError(
        absl::StrCat(task.ToString(), " speaks protocol version ",
                     request.protocol_version(), ", /job:ps/task:0 speaks ",
                     kProtocolVersion)));
  }
  if (absl::Status status = CheckTask(task); !status.ok()) return reply(status);
  if (request.num_ps() != options_.num_ps ||
      request.num_workers() != options_.num_workers) {
    return reply(absl::FailedPreconditionError(
        absl::StrCat("the ClusterSpec of ", task.ToString(), " has ",
                     request.num_ps(), " ps and ", request.num_workers(),
                     " worker tasks, that of /job:ps/task:0 ", options_.num_ps,
                     " and ", options_.num_workers)));
  }
  if (state_.phase() == proto::FAILED) {
    return reply(absl::AbortedError(state_.reason()));
  }

  const auto found = sessions_.find(task);
  if (found != sessions_.end() && found->second.alive &&
      found->second.nonce != request.nonce()) {
    return reply(absl::AlreadyExistsError(
        absl::StrCat("the place of ", task.ToString(), " is taken by ",
                     found->second.process, ", which is alive")));
  }
  // A message that comes again after its process has left revives nobody.
  const bool repeated =
      found != sessions_.end() && found->second.nonce == request.nonce();
  if (!repeated) {
    if (IsWorker(task)) {
      if (absl::Status status = CheckDigests(task, request); !status.ok()) {
        return reply(status);
      }
    }
    Session session;
    Incarnation& last = last_incarnation_[task];
    last = last.next();
    session.incarnation = last;
    session.nonce = request.nonce();
    session.process = request.process();
    session.expires = clock_->Now() + options_.lease;
    if (IsWorker(task)) session.clock = SlowestClock();
    sessions_[task] = session;
    if (task.job == kPsJob) {
      ps_addresses_[task.index] = request.address();
      memory_limits_[task.index] = request.memory_limit_bytes();
      links_->SetAddress(task.index, request.address());
    }
  }
  proto::RegisterResponse response;
  response.set_incarnation(sessions_[task].incarnation.value());
  response.set_generation(generation_.value());
  response.set_lease_ms(absl::ToInt64Milliseconds(options_.lease));
  reply(std::move(response));
  CreateWhenReady();
  StartClockWhenReady();
}

void Coordinator::RenewLease(const proto::RenewLeaseRequest& request,
                             Reply<proto::RenewLeaseResponse> reply) {
  absl::StatusOr<Session*> session = FindSession(request.sender());
  if (!session.ok()) return reply(session.status());
  if ((*session)->fenced && !ended()) {
    return reply(absl::AbortedError(absl::StrCat(
        Describe(ToTaskId(request.sender().task())),
        " has been shut out: its lease of ",
        absl::FormatDuration(options_.lease), " had run out; start it anew")));
  }
  if ((*session)->alive) (*session)->expires = clock_->Now() + options_.lease;
  if (ended()) (*session)->told = true;
  proto::RenewLeaseResponse response;
  response.set_generation(generation_.value());
  *response.mutable_state() = state_;
  reply(std::move(response));
}

// ---- The way to the first step ----

absl::StatusOr<proto::Declaration> Coordinator::Resolve(
    const proto::Declaration& declaration) const {
  proto::Declaration resolved = declaration;
  std::set<std::string> names;
  for (const proto::Variable& variable : resolved.variables()) {
    const auto error = [&](auto... what) {
      return absl::InvalidArgumentError(
          absl::StrCat("variable \"", variable.name(), "\": ", what...));
    };
    if (!names.insert(variable.name()).second) return error("declared twice");
    if (variable.dtype() != proto::FLOAT32) {
      return error("dtype ", proto::DataType_Name(variable.dtype()),
                   ", only FLOAT32 is held");
    }
    if (absl::StatusOr<int64_t> elements = NumElements(variable.shape());
        !elements.ok()) {
      return error(elements.status().message());
    }
    if (variable.optimizer() >=
        static_cast<uint32_t>(resolved.optimizers_size())) {
      return error("optimizer ", variable.optimizer(), " of ",
                   resolved.optimizers_size());
    }
  }

  resolved.set_num_workers(options_.num_workers);
  absl::Status status = resolved.consistency().has_asynchronous()
                            ? ResolveAsynchronous(&resolved)
                            : ResolveSynchronous(&resolved);
  if (!status.ok()) return status;
  return resolved;
}

absl::Status Coordinator::ResolveSynchronous(
    proto::Declaration* declaration) const {
  proto::Consistency::Synchronous& mode =
      *declaration->mutable_consistency()->mutable_synchronous();
  if (!mode.has_total_num_replicas()) {
    mode.set_total_num_replicas(options_.num_workers);
  }
  if (!mode.has_replicas_to_aggregate()) {
    mode.set_replicas_to_aggregate(mode.total_num_replicas());
  }
  const uint32_t n = mode.replicas_to_aggregate();
  const uint32_t m = mode.total_num_replicas();
  if (m != options_.num_workers) {
    return absl::InvalidArgumentError(
        absl::StrCat("total_num_replicas is ", m, ", the cluster has ",
                     options_.num_workers, " workers (with the chief)"));
  }
  if (n == 0) {
    return absl::InvalidArgumentError("replicas_to_aggregate is 0");
  }
  if (n > m && (n % m != 0 || n / m > kMaxSeatsPerWorker)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "replicas_to_aggregate is ", n, ", which is above total_num_replicas, ",
        m, ", and not a multiple of it up to ", kMaxSeatsPerWorker, " times"));
  }
  if (declaration->examples() == proto::EXAMPLES_DEFAULT) {
    declaration->set_examples(proto::BY_STEP);
  }
  const uint64_t tickets = declaration->total_tickets();
  if (declaration->examples() == proto::BY_TICKET) {
    const uint64_t steps = tickets / n + (tickets % n > 0 ? 1 : 0);
    if (tickets == 0 || declaration->total_steps() != steps) {
      return absl::InvalidArgumentError(absl::StrCat(
          "total_tickets is ", tickets, ", which make ", steps, " steps of ", n,
          "; total_steps is ", declaration->total_steps()));
    }
  } else if (tickets != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "total_tickets is ", tickets, ", but examples are BY_STEP"));
  }
  return absl::OkStatus();
}

absl::Status Coordinator::ResolveAsynchronous(
    proto::Declaration* declaration) const {
  proto::Consistency::Asynchronous& mode =
      *declaration->mutable_consistency()->mutable_asynchronous();
  if (!mode.has_pipeline_depth()) mode.set_pipeline_depth(1);
  if (declaration->examples() == proto::BY_STEP) {
    return absl::InvalidArgumentError(
        "examples are BY_STEP: an asynchronous job's are BY_TICKET");
  }
  declaration->set_examples(proto::BY_TICKET);
  if (declaration->total_tickets() == 0) {
    declaration->set_total_tickets(declaration->total_steps());
  }
  if (declaration->total_tickets() != declaration->total_steps()) {
    return absl::InvalidArgumentError(
        absl::StrCat("total_tickets is ", declaration->total_tickets(),
                     ", but must be total_steps, ", declaration->total_steps(),
                     ": each asynchronous push is a step"));
  }
  return absl::OkStatus();
}

void Coordinator::Declare(const proto::DeclareRequest& request,
                          Reply<proto::DeclareResponse> reply) {
  absl::StatusOr<Session*> session = FindSession(request.sender());
  if (!session.ok()) return reply(session.status());
  if (!IsWorker(ToTaskId(request.sender().task()))) {
    return reply(absl::InvalidArgumentError(
        absl::StrCat(ToTaskId(request.sender().task()).ToString(),
                     " is no worker: it may not declare")));
  }
  if (state_.phase() == proto::FAILED) {
    return reply(absl::AbortedError(state_.reason()));
  }
  absl::StatusOr<proto::Declaration> resolved = Resolve(request.declaration());
  if (!resolved.ok()) return reply(resolved.status());
  if (declaration_.has_value()) {
    google::protobuf::util::MessageDifferencer differencer;
    std::string difference;
    differencer.ReportDifferencesToString(&difference);
    if (!differencer.Compare(*declaration_, *resolved)) {
      return reply(absl::AlreadyExistsError(absl::StrCat(
          ToTaskId(request.sender().task()).ToString(),
          " declares otherwise than was declared before: ", difference)));
    }
  } else {
    absl::StatusOr<std::vector<proto::Slice>> slices =
        PlaceVariables(*resolved, options_.num_ps);
    if (!slices.ok()) return reply(slices.status());
    slices_ = *std::move(slices);
    declaration_ = *std::move(resolved);
  }
  proto::DeclareResponse response;
  response.set_generation(generation_.value());
  reply(std::move(response));
  CreateWhenReady();
}

void Coordinator::CreateWhenReady() {
  if (state_.phase() != proto::STARTING || !declaration_.has_value() ||
      broadcast_.kind != Broadcast::kNone) {
    return;
  }
  for (uint32_t ps = 1; ps < options_.num_ps; ++ps) {
    if (sessions_.count({kPsJob, ps}) == 0) return;
  }
  for (uint32_t ps = 0; ps < options_.num_ps; ++ps) {
    const auto plan =
        PlanMemory(*declaration_, slices_, ps, memory_limits_[ps]);
    if (!plan.ok()) return Fail(std::string(plan.status().message()));
  }
  *create_.mutable_sender() = Self();
  *create_.mutable_declaration() = *declaration_;
  create_.mutable_slices()->Assign(slices_.begin(), slices_.end());
  StartBroadcast(Broadcast::kCreate);
}

void Coordinator::StartClockWhenReady() {
  if (state_.phase() != proto::TRAINING || training_begun_.has_value()) return;
  const auto& mode = declaration_->consistency().synchronous();
  const size_t needed = asynchronous() ? 1
                                       : std::min(mode.replicas_to_aggregate(),
                                                  mode.total_num_replicas());
  const size_t joined =
      std::count_if(sessions_.begin(), sessions_.end(),
                    [&](const auto& s) { return IsWorker(s.first); });
  if (joined >= needed) {
    training_begun_ = last_commit_ = clock_->Now();
  }
}

proto::GetPlacementResponse Coordinator::PlacementAnswer() const {
  proto::GetPlacementResponse response;
  response.set_generation(generation_.value());
  *response.mutable_state() = state_;
  response.set_ready(created_);
  if (!created_) {
    response.set_waiting_for(WaitingFor());
    return response;
  }
  *response.mutable_declaration() = *declaration_;
  response.mutable_slices()->Assign(slices_.begin(), slices_.end());
  response.mutable_ps_addresses()->Assign(ps_addresses_.begin(),
                                          ps_addresses_.end());
  return response;
}

void Coordinator::GetPlacement(const proto::GetPlacementRequest& request,
                               Reply<proto::GetPlacementResponse> reply) {
  if (created_ || ended() || request.wait_ms() == 0 ||
      parked_placements_.size() >= kMaxParkedCalls) {
    return reply(PlacementAnswer());
  }
  parked_placements_.push_back(
      {std::move(reply), ParkedUntil(clock_->Now(), request.wait_ms())});
}

void Coordinator::AnswerPlacements() {
  const absl::Time now = clock_->Now();
  const bool all = created_ || ended();
  for (ParkedPlacement& parked :
       TakeIf(parked_placements_, [&](const ParkedPlacement& p) {
         return all || p.deadline <= now;
       })) {
    parked.reply(PlacementAnswer());
  }
}

// ---- The step ----

proto::ContributeResponse Coordinator::ContributeAnswer(
    proto::Verdict verdict) const {
  proto::ContributeResponse response;
  response.set_generation(generation_.value());
  *response.mutable_state() = state_;
  response.set_verdict(verdict);
  if (step_.has_value()) response.set_global_step(step_->number().value());
  if (verdict == proto::VERDICT_UNSPECIFIED) {
    response.set_waiting_for(WaitingFor());
  }
  return response;
}

void Coordinator::Contribute(const proto::ContributeRequest& request,
                             Reply<proto::ContributeResponse> reply) {
  const TaskId task = ToTaskId(request.sender().task());
  if (request.sender().generation() != generation_.value()) {
    return reply(ContributeAnswer(proto::ABORTED));
  }
  const auto session = sessions_.find(task);
  if (session != sessions_.end() &&
      request.sender().incarnation() < session->second.incarnation.value()) {
    return reply(ContributeAnswer(proto::FENCED));
  }
  if (absl::Status status = FindSession(request.sender()).status();
      !status.ok()) {
    return reply(status);
  }
  if (!IsWorker(task)) {
    return reply(absl::InvalidArgumentError(
        absl::StrCat(task.ToString(), " is no worker: it may not contribute")));
  }
  const PushId push{{task, Incarnation(request.sender().incarnation())},
                    PushSequence(request.sequence())};
  if (asynchronous()) {
    return reply(absl::FailedPreconditionError(
        "the job is asynchronous: pushes are applied, not contributed"));
  }
  AckThrough(push.from,
             std::min(request.acked_through(), request.sequence() - 1));
  if (const std::optional<proto::Verdict> verdict = ledger_.Find(push)) {
    return reply(ContributeAnswer(*verdict));
  }
  if (state_.phase() == proto::FAILED) {
    return reply(ContributeAnswer(proto::ABORTED));
  }
  if (!step_.has_value()) {
    return reply(absl::FailedPreconditionError(
        absl::StrCat("no step is open: waiting for ", WaitingFor())));
  }
  if (absl::Status status = Offer(request, push); !status.ok()) {
    return reply(status);
  }
  if (const std::optional<proto::Verdict> verdict = ledger_.Find(push)) {
    return reply(ContributeAnswer(*verdict));
  }
  // Who asks again does not wait for the earlier answer any more.
  std::vector<ParkedContribution> earlier =
      TakeIf(parked_contributions_, [&](const ParkedContribution& parked) {
        return !(parked.push < push) && !(push < parked.push);
      });
  parked_contributions_.push_back(
      {push, std::move(reply), ParkedUntil(clock_->Now(), request.wait_ms())});
  for (ParkedContribution& parked : earlier) {
    parked.reply(ContributeAnswer(proto::VERDICT_UNSPECIFIED));
  }
  CloseStepWhenReady();
}

// Seats the push, or decides it at once. OK either way.
absl::Status Coordinator::Offer(const proto::ContributeRequest& request,
                                const PushId& push) {
  const GlobalStep number(request.step());
  if (const std::optional<uint32_t> seat = step_->SeatOf(push)) {
    const SeatOffer& offer = *step_->Find(*seat);
    if (number == step_->number() && *seat == request.seat() &&
        offer.examples == request.examples() &&
        offer.clip_factor == ClipFactorOf(request)) {
      return absl::OkStatus();  // asked again
    }
    return absl::InvalidArgumentError(absl::StrCat(
        push.ToString(), " was offered to step ", step_->number().value(),
        ", seat ", *seat, " with ", offer.examples, " examples, clip factor ",
        offer.clip_factor, " before, now to step ", number.value(), ", seat ",
        request.seat(), " with ", request.examples(), ", ",
        ClipFactorOf(request)));
  }
  if (number > step_->number()) {
    return absl::FailedPreconditionError(
        absl::StrCat(push.ToString(), " is of step ", number.value(),
                     ", the open step is ", step_->number().value()));
  }
  if (absl::Status status = ledger_.CheckInWindow(push); !status.ok()) {
    return status;
  }
  if (request.seat() >= step_->num_seats() ||
      step_->OwnerOf(request.seat()) != ReplicaOf(push.from.worker)) {
    return absl::InvalidArgumentError(absl::StrCat(
        push.ToString(), ": seat ", request.seat(), " of ", step_->num_seats(),
        " is not the worker's: seats i with i mod ",
        declaration_->consistency().synchronous().total_num_replicas(), " = ",
        ReplicaOf(push.from.worker), " are"));
  }
  if (tickets_.has_value() && !tickets_->Find(push).has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(push.ToString(), " has no ticket: take one first"));
  }
  if (number < step_->number()) {
    Refuse(push, proto::STALE);
    return absl::OkStatus();
  }
  if (step_->Find(request.seat()) != nullptr) {
    Refuse(push, proto::DUPLICATE);
    return absl::OkStatus();
  }
  // N are here already, or the job has made all its steps.
  if (step_->full() || AllStepsFixed()) {
    Refuse(push, proto::STALE);
    return absl::OkStatus();
  }
  SeatOffer offer;
  offer.push = push;
  offer.examples = request.examples();
  offer.clip_factor = ClipFactorOf(request);
  offer.loss = request.loss();
  step_->Fill(request.seat(), std::move(offer));
  return absl::OkStatus();
}

void Coordinator::Refuse(const PushId& push, proto::Verdict verdict) {
  ledger_.Record(push, verdict);
  progress_.AddRefused(verdict);
  if (tickets_.has_value() && tickets_->Return(push)) GrantTickets();
}

// N offers, or all that can come: nobody else has a ticket, or can get one.
bool Coordinator::StepIsFull() const {
  if (step_->full()) return true;
  return tickets_.has_value() && tickets_->left() == 0 &&
         tickets_->out().size() == step_->offers().size();
}

void Coordinator::CloseStepWhenReady() {
  // Commit(t - 1) must be held by every shard before S of t is fixed: then a
  // shard never sees a Commit ahead of its own version.
  if (state_.phase() != proto::TRAINING ||
      broadcast_.kind != Broadcast::kNone || !StepIsFull()) {
    return;
  }
  commit_.Clear();
  *commit_.mutable_sender() = Self();
  commit_.set_step(step_->number().value());
  for (proto::StepContribution& contribution : step_->Contributions()) {
    *commit_.add_contributions() = std::move(contribution);
  }
  const bool changes = std::any_of(
      commit_.contributions().begin(), commit_.contributions().end(),
      [](const auto& contribution) { return contribution.weight() != 0; });
  for (const proto::Optimizer& optimizer : declaration_->optimizers()) {
    *commit_.add_scalars() =
        ScalarsAt(optimizer, step_->number().value(), updates_ + 1);
  }
  if (changes) ++updates_;
  committing_.clear();
  for (const auto& [seat, offer] : step_->offers()) {
    ledger_.Record(offer.push, proto::ACCEPTED);
    if (tickets_.has_value()) tickets_->Spend(offer.push);
    committing_.push_back({offer.push.from.worker, offer.examples, offer.loss,
                           /*staleness=*/std::nullopt});
  }
  const auto& mode = declaration_->consistency().synchronous();
  step_ = Step(step_->number().next(), mode.replicas_to_aggregate(),
               mode.total_num_replicas());
  step_opened_ = clock_->Now();
  StartBroadcast(Broadcast::kCommit);
  for (ParkedContribution& parked :
       TakeIf(parked_contributions_, [&](const ParkedContribution& p) {
         return ledger_.Find(p.push).has_value();
       })) {
    parked.reply(ContributeAnswer(*ledger_.Find(parked.push)));
  }
}

void Coordinator::OnCommitted() {
  committed_ = GlobalStep(commit_.step()).next();
  last_commit_ = clock_->Now();
  progress_.AddStep(committing_);
  if (AllStepsFixed()) return Finish();
  CloseStepWhenReady();
}

// Every step is committed, or every ticket spent.
void Coordinator::Finish() {
  state_.set_phase(proto::DONE);
  done_at_ = clock_->Now();
  AnswerTickets([](const ParkedTicket&) { return true; });
  EndWhenReady();
}

// ---- Messages to the shards ----

proto::Sender Coordinator::Self() const {
  proto::Sender self;
  self.mutable_task()->set_job(kPsJob);
  self.set_generation(generation_.value());
  return self;
}

void Coordinator::StartBroadcast(Broadcast::Kind kind) {
  broadcast_.kind = kind;
  ++broadcast_.number;
  broadcast_.begun = clock_->Now();
  broadcast_.shards.assign(options_.num_ps,
                           Broadcast::Shard{false, broadcast_.begun});
  SendDue();
}

void Coordinator::SendDue() {
  const absl::Time now = clock_->Now();
  const uint64_t number = broadcast_.number;
  for (uint32_t ps = 0; ps < broadcast_.shards.size(); ++ps) {
    Broadcast::Shard& shard = broadcast_.shards[ps];
    if (shard.acked || shard.due > now) continue;
    shard.due = now + options_.resend_after;
    const auto answered = [this, number, ps](const auto& response) {
      OnShardReply(number, ps, response.status());
    };
    switch (broadcast_.kind) {
      case Broadcast::kNone:
        return;
      case Broadcast::kCreate:
        links_->Create(ps, create_, answered);
        break;
      case Broadcast::kCommit:
        links_->Commit(ps, commit_, answered);
        break;
      case Broadcast::kFence:
        links_->Fence(ps, fence_, [this, number, ps](const auto& response) {
          if (response.ok() && IsAwaited(number, ps)) OnFenced(*response);
          OnShardReply(number, ps, response.status());
        });
        break;
      case Broadcast::kResolve:
        links_->Resolve(ps, resolve_, answered);
        break;
      case Broadcast::kEnd: {
        proto::EndRequest end;
        *end.mutable_sender() = Self();
        *end.mutable_state() = state_;
        links_->End(ps, end, answered);
        break;
      }
    }
    if (broadcast_.number != number) return;  // an answer came at once
  }
}

bool Coordinator::IsAwaited(uint64_t broadcast, uint32_t ps) const {
  return broadcast == broadcast_.number && !broadcast_.shards.empty() &&
         !broadcast_.shards[ps].acked;
}

void Coordinator::OnShardReply(uint64_t broadcast, uint32_t ps,
                               const absl::Status& status) {
  if (!IsAwaited(broadcast, ps)) return;
  Broadcast::Shard& shard = broadcast_.shards[ps];
  if (!status.ok()) {
    if (WorthRetrying(status)) {
      shard.due = clock_->Now() + kRetryAfter;
      return;
    }
    if (broadcast_.kind != Broadcast::kEnd) {
      Fail(absl::StrCat("/job:ps/task:", ps,
                        " refused to go on: ", status.ToString()));
      return;
    }
  }
  shard.acked = true;
  if (std::all_of(broadcast_.shards.begin(), broadcast_.shards.end(),
                  [](const auto& s) { return s.acked; })) {
    OnBroadcastAcked();
  }
}

void Coordinator::OnBroadcastAcked() {
  const Broadcast::Kind kind = broadcast_.kind;
  broadcast_.shards.clear();
  if (kind == Broadcast::kEnd) return;
  broadcast_.kind = Broadcast::kNone;
  switch (kind) {
    case Broadcast::kCreate:
      return OnCreated();
    case Broadcast::kCommit:
      return OnCommitted();
    case Broadcast::kFence:
      return StartResolve();
    case Broadcast::kResolve:
      return OnResolved();
    case Broadcast::kNone:
    case Broadcast::kEnd:
      return;
  }
}

void Coordinator::OnCreated() {
  created_ = true;
  state_.set_phase(proto::TRAINING);
  if (declaration_->examples() == proto::BY_TICKET) {
    tickets_.emplace(declaration_->total_tickets());
  }
  if (!asynchronous()) {
    const auto& mode = declaration_->consistency().synchronous();
    step_ = Step(GlobalStep(0), mode.replicas_to_aggregate(),
                 mode.total_num_replicas());
  }
  step_opened_ = clock_->Now();
  StartClockWhenReady();
  AnswerPlacements();
}

// ---- Waits, leases and the end ----

// A worker may see the last version on every shard, and leave, before the
// coordinator has heard that they hold it.
bool Coordinator::AllStepsFixed() const {
  return step_.has_value() &&
         step_->number().value() >= declaration_->total_steps();
}

std::string Coordinator::WaitingFor() const {
  if (broadcast_.kind != Broadcast::kNone &&
      broadcast_.kind != Broadcast::kEnd) {
    std::vector<std::string> silent;
    for (uint32_t ps = 0; ps < broadcast_.shards.size(); ++ps) {
      if (!broadcast_.shards[ps].acked) {
        silent.push_back(absl::StrCat("/job:ps/task:", ps));
      }
    }
    const std::string what =
        broadcast_.kind == Broadcast::kCreate ? "the making of variables"
        : broadcast_.kind == Broadcast::kCommit
            ? absl::StrCat("the commit of step ", commit_.step())
            : "the shutting out of lost workers";
    return absl::StrCat(what, " at ", absl::StrJoin(silent, ", "));
  }
  if (state_.phase() == proto::STARTING) {
    std::vector<std::string> missing;
    for (uint32_t ps = 1; ps < options_.num_ps; ++ps) {
      const TaskId task{kPsJob, ps};
      if (sessions_.count(task) == 0) missing.push_back(Describe(task));
    }
    if (!declaration_.has_value()) {
      missing.push_back(
          absl::StrCat("the declaration by ", Describe(WorkerOfReplica(0))));
    }
    return absl::StrJoin(missing, ", ");
  }
  if (state_.phase() == proto::TRAINING && tickets_.has_value() &&
      (asynchronous() || tickets_->left() == 0)) {
    return WaitingForTickets();
  }
  if (state_.phase() == proto::TRAINING) {
    std::vector<std::string> missing;
    for (const uint32_t replica : step_->MissingReplicas()) {
      missing.push_back(Describe(WorkerOfReplica(replica)));
    }
    return absl::StrJoin(missing, ", ");
  }
  if (state_.phase() == proto::DONE) {
    std::vector<std::string> present = LateWorkers();
    for (const auto& [task, session] : sessions_) {
      if (IsWorker(task) && session.alive) present.push_back(Describe(task));
    }
    if (present.empty()) return "";
    return absl::StrCat("the leave of ", absl::StrJoin(present, ", "));
  }
  return "";
}

void Coordinator::Tick() {
  const absl::Time now = clock_->Now();
  JudgeLeases(now);
  JudgeTimeouts(now);
  last_tick_ = now;
  SendDue();
  AnswerPlacements();
  for (ParkedContribution& parked :
       TakeIf(parked_contributions_,
              [&](const ParkedContribution& p) { return p.deadline <= now; })) {
    parked.reply(ContributeAnswer(proto::VERDICT_UNSPECIFIED));
  }
  AnswerTickets([&](const ParkedTicket& p) { return p.deadline <= now; });
}

void Coordinator::JudgeLeases(absl::Time now) {
  if (now - last_tick_ > options_.lease / 2) {
    // This process itself was held up, and may not have heard the others.
    for (auto& [task, session] : sessions_) {
      session.expires = std::max(session.expires, now + options_.lease);
    }
    judged_from_ = now;
    return;
  }
  for (auto& [task, session] : sessions_) {
    if (!session.alive || session.expires > now) continue;
    session.alive = false;
    if (ended() || (AllStepsFixed() && IsWorker(task))) continue;
    if (asynchronous() && created_ && IsWorker(task)) {
      ShutOut(task, &session);
    } else {
      Fail(absl::StrCat(Describe(task),
                        " is lost: nothing was heard of it for ",
                        absl::FormatDuration(options_.lease)));
    }
  }
  EndWhenReady();
}

absl::Duration Coordinator::StartTimeout() const {
  return declaration_.has_value() &&
                 declaration_->timeouts().has_start_seconds()
             ? absl::Seconds(declaration_->timeouts().start_seconds())
             : options_.start_timeout;
}

absl::Duration Coordinator::StepTimeout() const {
  return declaration_.has_value() && declaration_->timeouts().has_step_seconds()
             ? absl::Seconds(declaration_->timeouts().step_seconds())
             : options_.step_timeout;
}

void Coordinator::JudgeTimeouts(absl::Time now) {
  if (now - judged_from_ < options_.lease) return;
  const absl::Duration start = StartTimeout();
  const absl::Duration step = StepTimeout();
  if (ended()) {
    if (state_.phase() == proto::DONE && now - done_at_ > step) {
      // They have all that they came for; the job ends without them.
      for (auto& [task, session] : sessions_) {
        if (IsWorker(task)) session.alive = false;
      }
      EndWhenReady();
    }
    return;
  }
  if (!training_begun_.has_value()) {
    if (now - begun_ > start) {
      Fail(absl::StrCat("the job did not start within ",
                        absl::FormatDuration(start), ": waited for ",
                        WaitingFor()));
    }
    return;
  }
  if (now - std::max(step_opened_, *training_begun_) <= step) return;
  if (asynchronous()) {
    Fail(absl::StrCat("no push came through for ", absl::FormatDuration(step),
                      ": waited for ", WaitingFor()));
  } else {
    Fail(absl::StrCat("step ", step_->number().value(), " was open for ",
                      absl::FormatDuration(step), ": waited for ",
                      WaitingFor()));
  }
}

void Coordinator::Fail(const std::string& reason) {
  if (ended()) return;
  state_.set_phase(proto::FAILED);
  state_.set_reason(reason);
  std::vector<ParkedContribution> parked =
      TakeIf(parked_contributions_, [](const auto&) { return true; });
  for (const ParkedContribution& contribution : parked) {
    if (!ledger_.Find(contribution.push).has_value()) {
      Refuse(contribution.push, proto::ABORTED);
    }
  }
  for (ParkedContribution& contribution : parked) {
    contribution.reply(ContributeAnswer(*ledger_.Find(contribution.push)));
  }
  AnswerTickets([](const ParkedTicket&) { return true; });
  AnswerPlacements();
  EndWhenReady();
}

// Those that have not joined, and still may: a short job can be done before its
// last worker has started, who is to hear of it from us.
std::vector<std::string> Coordinator::LateWorkers() const {
  std::vector<std::string> late;
  if (clock_->Now() - begun_ > StartTimeout()) return late;
  for (uint32_t replica = 0; replica < options_.num_workers; ++replica) {
    const TaskId worker = WorkerOfReplica(replica);
    if (last_incarnation_.count(worker) == 0) late.push_back(Describe(worker));
  }
  return late;
}

// Tells the shards, once no worker needs them any more.
void Coordinator::EndWhenReady() {
  if (!ended() || broadcast_.kind == Broadcast::kEnd) return;
  const bool in_use =
      std::any_of(sessions_.begin(), sessions_.end(), [&](const auto& entry) {
        return IsWorker(entry.first) && entry.second.alive;
      });
  if (state_.phase() == proto::FAILED || (!in_use && LateWorkers().empty())) {
    StartBroadcast(Broadcast::kEnd);
  }
}

bool Coordinator::finished() const {
  if (!ended() || broadcast_.kind != Broadcast::kEnd) return false;
  const bool patience_over = clock_->Now() - broadcast_.begun > options_.lease;
  for (uint32_t ps = 0; ps < broadcast_.shards.size(); ++ps) {
    const auto session = sessions_.find({kPsJob, ps});
    const bool reachable =
        ps == 0 || (session != sessions_.end() && session->second.alive);
    if (!broadcast_.shards[ps].acked && reachable && !patience_over) {
      return false;
    }
  }
  if (patience_over) return true;
  return std::all_of(sessions_.begin(), sessions_.end(),
                     [&](const auto& entry) {
                       return !IsWorker(entry.first) || entry.second.told ||
                              !entry.second.alive;
                     });
}

void Coordinator::Leave(const proto::LeaveRequest& request,
                        Reply<proto::LeaveResponse> reply) {
  absl::StatusOr<Session*> session = FindSession(request.sender());
  if (!session.ok()) return reply(session.status());
  const TaskId task = ToTaskId(request.sender().task());
  if ((*session)->alive) {
    (*session)->alive = false;
    const bool needed_no_more =
        AllStepsFixed() && IsWorker(task) && request.error().empty();
    if (asynchronous() && created_ && IsWorker(task) &&
        request.error().empty() && !ended()) {
      // The others go on; what it held is theirs.
      ShutOut(task, *session);
    } else if (!ended() && !needed_no_more) {
      Fail(absl::StrCat(
          Describe(task), " left before the end: ",
          request.error().empty() ? "it gave no reason" : request.error()));
    }
  }
  proto::LeaveResponse response;
  *response.mutable_state() = state_;
  reply(std::move(response));
  EndWhenReady();
}

void Coordinator::ReportEvaluation(
    const proto::ReportEvaluationRequest& request,
    Reply<proto::ReportEvaluationResponse> reply) {
  if (absl::Status status = FindSession(request.sender()).status();
      !status.ok()) {
    return reply(status);
  }
  if (!evaluation_.has_value() ||
      request.result().step() >= evaluation_->step()) {
    evaluation_ = request.result();
  }
  proto::ReportEvaluationResponse response;
  response.set_generation(generation_.value());
  reply(std::move(response));
}

void Coordinator::GetStatus(const proto::GetStatusRequest& request,
                            Reply<proto::GetStatusResponse> reply) {
  proto::GetStatusResponse status;
  status.set_generation(generation_.value());
  *status.mutable_state() = state_;
  status.set_global_step(committed_.value());
  const absl::Time now = clock_->Now();
  const absl::Time since = state_.phase() == proto::DONE ? done_at_
                           : training_begun_.has_value()
                               ? std::max(step_opened_, *training_begun_)
                               : begun_;
  if (now - since > kLate) status.set_waiting_for(WaitingFor());
  progress_.AddTo(&status);
  if (training_begun_.has_value()) {
    status.set_training_seconds(
        absl::ToDoubleSeconds(last_commit_ - *training_begun_));
  }
  if (evaluation_.has_value()) *status.mutable_evaluation() = *evaluation_;
  for (const auto& [task, session] : sessions_) {
    proto::TaskStatus& entry = *status.add_tasks();
    entry.mutable_task()->set_job(task.job);
    entry.mutable_task()->set_index(task.index);
    entry.set_incarnation(session.incarnation.value());
    entry.set_process(session.process);
    entry.set_alive(session.alive);
  }
  if (declaration_.has_value()) {
    const auto& mode = declaration_->consistency().synchronous();
    status.set_total_steps(declaration_->total_steps());
    status.set_replicas_to_aggregate(mode.replicas_to_aggregate());
    status.set_total_num_replicas(mode.total_num_replicas());
  }
  reply(std::move(status));
}

}  // namespace holdfast
