// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/members.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/printable_text.h"
#include "common/base/status_macros.h"
#include "common/rpc/rpc_limits.h"
#include "glog/logging.h"
#include "ps_server/protocol/request.h"

namespace holdfast {
namespace {

// [L1] A number larger than the times that a task can register in one life of
// the coordinator.
constexpr uint64_t kIncarnationsPerGeneration = 1000000000;

// Keeps what a task reports about itself for users.
void Note(const proto::RenewLeaseRequest& request, const TaskId& task,
          Member* session) {
  if (request.has_input_wait()) session->input_wait = request.input_wait();
  if (request.has_worker() && IsWorker(task) &&
      request.worker().waiting_for().size() <= kMaxTextBytes) {
    session->worker = request.worker();
  }
  if (request.has_ps() && task.job == kPsJob) session->ps = request.ps();
}

// [L1] An answer that asks the task to try again.
proto::RegisterResponse NotAdmitted(const std::string& waiting_for) {
  proto::RegisterResponse response;
  response.set_waiting_for(waiting_for);
  return response;
}

}  // namespace

Members::Members(const CoordinatorOptions& options, bool has_archive,
                 const Clock* clock, Outbox* outbox,
                 const JobDeclaration* declared, Owner* owner)
    : options_(options),
      has_archive_(has_archive),
      clock_(clock),
      outbox_(outbox),
      declared_(declared),
      owner_(owner),
      incarnations_from_(options.incarnations_from),
      last_judged_(clock->Now()),
      ps_addresses_(options.num_ps),
      memory_limits_(options.num_ps),
      shard_nonces_(options.num_ps) {
  ps_addresses_[0] = options.address;
  memory_limits_[0] = options.memory_limit_bytes;
  shard_nonces_[0] = options.shard_nonce;
}

void Members::TakeUp(const proto::Journal& journal) {
  incarnations_from_ = journal.generation() * kIncarnationsPerGeneration;
}

// ---- Names ----

TaskId Members::WorkerOfReplica(uint32_t replica) const {
  if (!options_.has_chief) return {kWorkerJob, replica};
  return replica == 0 ? TaskId{kChiefJob, 0} : TaskId{kWorkerJob, replica - 1};
}

uint32_t Members::ReplicaOf(const TaskId& worker) const {
  if (!options_.has_chief) return worker.index;
  return worker.job == kChiefJob ? 0 : worker.index + 1;
}

std::string Members::Describe(const TaskId& task) const {
  const Member* session = Find(task);
  if (session == nullptr) {
    return absl::StrCat(task.ToString(), " (not joined)");
  }
  const std::string name =
      absl::StrCat(task.ToString(), " (", session->process);
  if (session->live() || ended()) return name + ")";
  if (session->departure.empty()) return name + ", lost)";
  return absl::StrCat(name, ", left: ", session->departure, ")");
}

void Members::AddTo(proto::GetStatusResponse* status) const {
  proto::TaskStatus& own = *status->add_tasks();
  own.mutable_task()->set_job(kPsJob);
  own.set_process(options_.process);
  own.set_alive(true);
  if (own_report_.has_value()) *own.mutable_ps() = *own_report_;
  const absl::Time now = clock_->Now();
  for (const auto& [task, session] : sessions_) {
    proto::TaskStatus& entry = *status->add_tasks();
    entry.mutable_task()->set_job(task.job);
    entry.mutable_task()->set_index(task.index);
    entry.set_incarnation(session.incarnation.value());
    entry.set_process(session.process);
    entry.set_alive(session.live());
    entry.set_silent_seconds(absl::ToDoubleSeconds(now - session.renewed_at));
    if (session.input_wait.has_value()) {
      *entry.mutable_input_wait() = *session.input_wait;
    }
    if (session.worker.has_value()) *entry.mutable_worker() = *session.worker;
    if (session.ps.has_value()) *entry.mutable_ps() = *session.ps;
  }
}

std::vector<TaskId> Members::MissingPs() const {
  std::vector<TaskId> missing;
  for (uint32_t ps = 1; ps < options_.num_ps; ++ps) {
    if (!IsLive({kPsJob, ps})) missing.push_back({kPsJob, ps});
  }
  return missing;
}

absl::StatusOr<const Member*> Members::FindSession(
    const proto::Sender& sender) const {
  if (sender.generation() != owner_->generation().value()) {
    return absl::AbortedError(absl::StrCat(
        ToTaskId(sender.task()).ToString(), " speaks in generation ",
        sender.generation(), ", the job is in ", owner_->generation().value()));
  }
  return FindLife(sender);
}

absl::StatusOr<const Member*> Members::FindLife(
    const proto::Sender& sender) const {
  const TaskId task = ToTaskId(sender.task());
  const Member* session = Find(task);
  if (session == nullptr ||
      session->incarnation.value() != sender.incarnation()) {
    return absl::NotFoundError(
        absl::StrCat(task.ToString(), " has no session with incarnation ",
                     sender.incarnation(), ": register first"));
  }
  return session;
}

bool Members::IsFenced(const proto::Sender& sender) const {
  const Member* session = Find(ToTaskId(sender.task()));
  if (session == nullptr) return false;
  return sender.incarnation() < session->incarnation.value() ||
         (sender.incarnation() == session->incarnation.value() &&
          session->fenced());
}

// ---- Who may join ----

absl::Status Members::CheckTask(const TaskId& task) const {
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
  if (IsEvaluator(task) && task.index < kMaxEvaluators) {
    return absl::OkStatus();
  }
  const uint32_t chiefs = options_.has_chief ? 1 : 0;
  const uint32_t plain_workers = options_.num_workers - chiefs;
  // [L5] The task is a worker beyond those of the ClusterSpec.
  const bool joins = declared_->continues() && task.job == kWorkerJob &&
                     task.index < (*declared_)->num_workers() - chiefs;
  if ((task.job == kWorkerJob && task.index < plain_workers) || joins) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      task.ToString(), " is not in the cluster of /job:ps/task:0, which has ",
      options_.num_ps, " ps, ", plain_workers, " worker and ",
      options_.has_chief ? 1 : 0, " chief tasks"));
}

absl::Status Members::CheckCluster(
    const TaskId& task, const proto::RegisterRequest& request) const {
  if (request.protocol_version() != kProtocolVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat(task.ToString(), " speaks protocol version ",
                     request.protocol_version(), ", /job:ps/task:0 speaks ",
                     kProtocolVersion));
  }
  HOLDFAST_RETURN_IF_ERROR(CheckTask(task));
  for (const std::string* text :
       {&request.process(), &request.address(), &request.job_digest(),
        &request.data_digest()}) {
    if (text->size() <= kMaxTextBytes) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(task.ToString(), ": process, address or digest of ",
                     text->size(), " bytes, at most ", kMaxTextBytes));
  }
  const bool more_workers =
      declared_->continues() && request.num_workers() > options_.num_workers;
  if (request.num_ps() != options_.num_ps ||
      (request.num_workers() != options_.num_workers && !more_workers)) {
    return absl::FailedPreconditionError(
        absl::StrCat("the ClusterSpec of ", task.ToString(), " has ",
                     request.num_ps(), " ps and ", request.num_workers(),
                     " worker tasks, but that of /job:ps/task:0 has ",
                     options_.num_ps, " and ", options_.num_workers));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Members::FindObstacle(
    const proto::RegisterRequest& request) const {
  const TaskId task = ToTaskId(request.sender().task());
  // [L5] Only the declaration says whether others may join.
  if (!declared_->has_value() && !ended() && task.job == kWorkerJob &&
      task.index >= options_.num_workers - (options_.has_chief ? 1 : 0) &&
      request.num_workers() > options_.num_workers) {
    return absl::StrCat("the declaration by ", Describe(WorkerOfReplica(0)),
                        ", which says whether others may join");
  }
  HOLDFAST_RETURN_IF_ERROR(CheckCluster(task, request));
  if (task.job != kPsJob && !declared_->refusal().ok()) {
    return declared_->refusal();
  }
  if (owner_->state().phase() == proto::FAILED) {
    return absl::AbortedError(owner_->state().reason());
  }
  // [R5] An answer names the generation.
  if (owner_->beginning()) return owner_->WaitingFor();
  if (IsAdmitted(request)) return "";
  const uint64_t known = request.sender().generation();
  const uint64_t generation = owner_->generation().value();
  if (known != 0 && (!has_archive_ || known > generation)) {
    return absl::FailedPreconditionError(absl::StrCat(
        task.ToString(), " was in generation ", known,
        " of a job that this coordinator does not know",
        has_archive_ ? absl::StrCat("; its own is in ", generation)
                     : ": it has restarted and has no --checkpoint_dir"));
  }
  if (!IsLive(task)) return "";
  return absl::StrCat("the lease of ", Describe(task),
                      ", which has this place, to expire");
}

// A message that is repeated after its process has left does not revive the
// session.
bool Members::IsAdmitted(const proto::RegisterRequest& request) const {
  const Member* session = Find(ToTaskId(request.sender().task()));
  return session != nullptr && session->nonce == request.nonce();
}

proto::RegisterResponse Members::RegisterAnswer(const TaskId& task) const {
  proto::RegisterResponse response;
  response.set_incarnation(sessions_.at(task).incarnation.value());
  response.set_generation(owner_->generation().value());
  response.set_lease_ms(absl::ToInt64Milliseconds(options_.lease));
  return response;
}

void Members::Register(const proto::RegisterRequest& request,
                       Reply<proto::RegisterResponse> reply) {
  const TaskId task = ToTaskId(request.sender().task());
  const absl::StatusOr<std::string> obstacle = FindObstacle(request);
  if (!obstacle.ok()) {
    return outbox_->Answer(std::move(reply), obstacle.status());
  }
  if (!obstacle->empty()) return Park(request, *obstacle, std::move(reply));
  if (!IsAdmitted(request)) {
    if (task.job != kPsJob) {
      if (absl::Status status = owner_->CheckDigests(task, request);
          !status.ok()) {
        return outbox_->Answer(std::move(reply), status);
      }
    }
    Admit(task, request);
    if (owner_->beginning()) {
      return Park(request, owner_->WaitingFor(), std::move(reply));
    }
  }
  outbox_->Answer(std::move(reply), RegisterAnswer(task));
}

// The place of `task` is free for another process.
void Members::Admit(const TaskId& task, const proto::RegisterRequest& request) {
  if (sessions_.count(task) != 0) {
    owner_->OnReplaced(task);
  } else if (IsWorker(task)) {
    ++num_workers_seen_;
  }
  Incarnation& last = last_incarnation_[task];
  if (last.value() == 0) last = Incarnation(incarnations_from_);
  last = last.next();
  Member session;
  session.incarnation = last;
  session.nonce = request.nonce();
  session.process = PrintableText(request.process());
  session.renewed_at = clock_->Now();
  session.expires = session.renewed_at + options_.lease;
  sessions_[task] = session;
  SetPresence(task, &sessions_[task], Presence::kLive);
  bool again = false;
  if (task.job == kPsJob) {
    ps_addresses_[task.index] = request.address();
    memory_limits_[task.index] = request.memory_limit_bytes();
    again = std::exchange(shard_nonces_[task.index], request.nonce()) !=
            request.nonce();
  }
  owner_->OnJoined(task, again);
}

void Members::SetPresence(const TaskId& task, Member* session,
                          Presence presence) {
  session->presence = presence;
  ++presence_changes_;
  if (session->live()) {
    leases_run_until_ = std::min(leases_run_until_, session->expires);
    lost_.erase(task);
    if (IsWorker(task)) live_workers_.insert(task);
    if (IsEvaluator(task)) live_evaluators_.insert(task);
  } else {
    lost_.insert(task);
    live_workers_.erase(task);
    live_evaluators_.erase(task);
  }
}

void Members::Park(const proto::RegisterRequest& request,
                   const std::string& obstacle,
                   Reply<proto::RegisterResponse> reply) {
  const Registrant registrant = {ToTaskId(request.sender().task()),
                                 request.nonce()};
  const absl::Time now = clock_->Now();
  auto [earlier, no_room] = parked_registers_.ParkLatest(
      registrant, std::move(reply),
      std::min(ParkedUntil(now, request.wait_ms()), now + kMaxRegisterPark),
      request);
  if (request.wait_ms() == 0 || no_room) {
    for (auto& parked : parked_registers_.Take(registrant)) {
      outbox_->Answer(std::move(parked.reply), NotAdmitted(obstacle));
    }
  }
  for (auto& parked : earlier) {
    outbox_->Answer(std::move(parked.reply),
                    absl::UnavailableError("asked again"));
  }
}

void Members::RetryRegisters(std::optional<TaskId> task) {
  std::vector<ParkedRegisters::Call> ready;
  for (auto& parked :
       task.has_value()
           ? parked_registers_.TakeBetween(
                 {*task, 0}, {*task, std::numeric_limits<uint64_t>::max()})
           : parked_registers_.TakeAll()) {
    const absl::StatusOr<std::string> obstacle = FindObstacle(parked.request);
    if (obstacle.ok() && !obstacle->empty()) {
      parked_registers_.Park(parked.key, std::move(parked.reply),
                             parked.deadline, std::move(parked.request));
    } else {
      ready.push_back(std::move(parked));
    }
  }
  Answer(std::move(ready));
}

void Members::Answer(std::vector<ParkedRegisters::Call> registers) {
  for (auto& parked : registers) {
    const absl::StatusOr<std::string> obstacle = FindObstacle(parked.request);
    if (!obstacle.ok()) {
      outbox_->Answer(std::move(parked.reply), obstacle.status());
    } else if (!obstacle->empty()) {
      outbox_->Answer(std::move(parked.reply), NotAdmitted(*obstacle));
    } else if (!IsAdmitted(parked.request)) {
      outbox_->Answer(std::move(parked.reply),
                      NotAdmitted("the task to ask again"));
    } else {
      outbox_->Answer(std::move(parked.reply),
                      RegisterAnswer(parked.key.first));
    }
  }
}

// ---- Who is here ----

bool Members::MayWaitForPlace(const proto::RegisterRequest& request) const {
  return request.has_waited_ms() &&
         absl::Milliseconds(request.waited_ms()) < options_.lease;
}

void Members::RenewLease(const proto::RenewLeaseRequest& request,
                         Reply<proto::RenewLeaseResponse> reply) {
  const WorkerLife life = ToWorkerLife(request.sender());
  const TaskId& task = life.worker;
  const auto found = sessions_.find(task);
  const bool own =
      found != sessions_.end() && found->second.incarnation == life.incarnation;
  if (IsFenced(request.sender()) && (!own || !ended())) {
    return outbox_->Answer(
        std::move(reply),
        absl::AbortedError(absl::StrCat(task.ToString(), " with incarnation ",
                                        request.sender().incarnation(),
                                        " has been fenced: its lease of ",
                                        absl::FormatDuration(options_.lease),
                                        " had expired, or another process has "
                                        "taken its place; restart it")));
  }
  if (!own) {
    return outbox_->Answer(
        std::move(reply),
        absl::NotFoundError(
            absl::StrCat(task.ToString(), " has no session with incarnation ",
                         request.sender().incarnation(), ": register first")));
  }
  Member& session = found->second;
  const absl::Time now = clock_->Now();
  session.renewed_at = now;
  Note(request, task, &session);
  if (!session.left()) {
    session.expires = now + options_.lease;
    if (!session.live() && !ended()) {
      session.lost_at = absl::InfiniteFuture();
      SetPresence(task, &session, Presence::kLive);
      owner_->OnBack(task);
    }
    const Registrant holder = {task, session.nonce};
    for (auto& parked :
         parked_registers_.TakeIf([&](const ParkedRegisters::Call& p) {
           return p.key.first == task && p.key != holder &&
                  !MayWaitForPlace(p.request);
         })) {
      outbox_->Answer(std::move(parked.reply),
                      absl::AlreadyExistsError(absl::StrCat(
                          "the place of ", task.ToString(), " is taken by ",
                          session.process, ", which is alive")));
    }
  }
  const bool traces = owner_->HearTrace(request);
  const bool knows =
      traces && request.sender().generation() == owner_->generation().value() &&
      request.known_phase() == owner_->state().phase();
  if (!knows || ended() || request.wait_ms() == 0 || parked_renewals_.full()) {
    return outbox_->Answer(std::move(reply), RenewalAnswer(life));
  }
  const absl::Duration longest = options_.lease / 3;
  parked_renewals_.Park(
      life, std::move(reply),
      std::min(ParkedUntil(now, request.wait_ms()), now + longest), request);
}

proto::RenewLeaseResponse Members::RenewalAnswer(const WorkerLife& life) const {
  if (ended()) owner_->OnTold(life);
  proto::RenewLeaseResponse response;
  response.set_generation(owner_->generation().value());
  *response.mutable_state() = owner_->state();
  response.set_durable_step(owner_->durable_step());
  if (const auto order = owner_->trace_order())
    *response.mutable_trace() = *order;
  return response;
}

void Members::Answer(std::vector<ParkedRenewals::Call> renewals) {
  for (auto& parked : renewals) {
    const Member* session = Find(parked.key.worker);
    if (session == nullptr || session->incarnation != parked.key.incarnation) {
      RenewLease(parked.request, std::move(parked.reply));  // tells why
      continue;
    }
    outbox_->Answer(std::move(parked.reply), RenewalAnswer(parked.key));
  }
}

void Members::AnswerRenewals() { Answer(parked_renewals_.TakeAll()); }

void Members::AnswerDue() {
  const absl::Time now = clock_->Now();
  Answer(parked_registers_.TakeDue(now));
  Answer(parked_renewals_.TakeDue(now));
}

// ---- Who is gone ----

void Members::JudgeLeases() {
  const absl::Time now = clock_->Now();
  const absl::Duration since = now - std::exchange(last_judged_, now);
  if (since > options_.lease / 2) {
    // This process itself was stalled, and may not have heard from the others.
    for (auto& [task, session] : sessions_) {
      session.expires = std::max(session.expires, now + options_.lease);
    }
    judged_from_ = now;
    return;
  }
  // A task that waits for the answer to its Register cannot renew its lease.
  for (auto* parked = parked_registers_.Next(0); parked != nullptr;
       parked = parked_registers_.Next(parked->number)) {
    const auto& [task, nonce] = parked->key;
    const auto found = sessions_.find(task);
    if (found != sessions_.end() && found->second.nonce == nonce) {
      found->second.expires = now + options_.lease;
    }
  }
  if (leases_run_until_ > now) return;
  std::vector<TaskId> lost;
  leases_run_until_ = absl::InfiniteFuture();
  for (const auto& [task, session] : sessions_) {
    if (!session.live()) continue;
    if (session.expires <= now) {
      lost.push_back(task);
    } else {
      leases_run_until_ = std::min(leases_run_until_, session.expires);
    }
  }
  for (const TaskId& task : lost) {
    Member& session = sessions_.at(task);
    session.lost_at = now;
    SetPresence(task, &session, Presence::kLost);
    owner_->OnLost(task);
    RetryRegisters(task);
  }
}

void Members::OnLeave(const TaskId& task, const std::string& departure) {
  Member& session = sessions_.at(task);
  session.departure = departure;
  session.lost_at = clock_->Now();
  SetPresence(task, &session, Presence::kLeft);
}

void Members::GiveUpWorkers() {
  for (auto& [task, session] : sessions_) {
    if (task.job == kPsJob) continue;
    SetPresence(task, &session,
                session.fenced() ? Presence::kLeftFenced : Presence::kLeft);
  }
}

void Members::Fence(const TaskId& worker) {
  Member& session = sessions_.at(worker);
  if (session.live()) session.lost_at = clock_->Now();
  SetPresence(worker, &session,
              session.left() ? Presence::kLeftFenced : Presence::kFenced);
}

}  // namespace holdfast
