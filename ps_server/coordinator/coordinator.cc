#include "ps_server/coordinator/coordinator.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/consistency_rules.h"
#include "common/placement.h"
#include "common/rpc/backoff.h"
#include "common/rpc_limits.h"
#include "common/shape.h"
#include "common/version.h"
#include "glog/logging.h"
#include "google/protobuf/util/message_differencer.h"
#include "ps_server/coordinator/schedule.h"
#include "ps_server/protocol/memory_plan.h"
#include "ps_server/protocol/request.h"

namespace holdfast {
namespace {

// A wait shorter than this is the normal course of a step, and not told to
// people.
constexpr absl::Duration kLate = absl::Seconds(2);
// Before a shard that refused a connection is tried again.
constexpr absl::Duration kRetryAfter = absl::Milliseconds(200);
// A checkpoint of which nothing is written for longer is told to people.
constexpr absl::Duration kStandingDisk = absl::Seconds(30);
// Where the job does not say.
constexpr absl::Duration kDefaultDiskTimeout = absl::Seconds(300);
constexpr absl::Duration kLongestDiskPark = absl::Seconds(2);
// [L1] More than a task can register in a coordinator's life.
constexpr uint64_t kIncarnationsPerGeneration = 1000000000;
// Of what a task says of itself, which is kept, and in many an answer.
constexpr size_t kMaxTextBytes = 256;
// Of why a job has failed, which all are told; a task's last words may be long.
constexpr size_t kMaxReasonBytes = 4000;
// Of the tasks that are waited for, those that an answer names.
constexpr size_t kMostNamed = 20;

// `text` within the limit, not cut inside a character of UTF-8.
std::string Shorten(const std::string& text, size_t limit) {
  if (text.size() <= limit) return text;
  const auto inside_character = [&](size_t i) {
    return (static_cast<unsigned char>(text[i]) & 0xc0) == 0x80;
  };
  while (limit > 0 && inside_character(limit)) --limit;
  return text.substr(0, limit) + "...";
}

// [L1] Ask again.
proto::RegisterResponse NotAdmitted(const std::string& waiting_for) {
  proto::RegisterResponse response;
  response.set_waiting_for(waiting_for);
  return response;
}

// Errors: ALREADY_EXISTS, with the first field that differs.
absl::Status CheckSameDeclaration(const TaskId& task,
                                  const proto::Declaration& declared,
                                  const proto::Declaration& other) {
  google::protobuf::util::MessageDifferencer differencer;
  std::string differences;
  differencer.ReportDifferencesToString(&differences);
  if (differencer.Compare(declared, other)) return absl::OkStatus();
  // "modified: optimizers[0].learning_rate: 0.1 -> 0.2", then others.
  absl::string_view first = differences;
  first = first.substr(0, first.find('\n'));
  absl::ConsumePrefix(&first, "modified: ");
  return absl::AlreadyExistsError(absl::StrCat(
      task.ToString(), " declares otherwise than was declared before: ",
      Shorten(std::string(first), kMaxTextBytes)));
}

// The ps with what is known of it, as "/job:ps/task:1 (3 of 10 GiB)".
std::string DescribeShard(uint32_t ps, const std::string& progress,
                          const std::string& trouble) {
  const std::string name = absl::StrCat("/job:ps/task:", ps);
  if (progress.empty() && trouble.empty()) return name;
  return absl::StrCat(name, " (", progress,
                      progress.empty() || trouble.empty() ? "" : "; ", trouble,
                      ")");
}

}  // namespace

Coordinator::Coordinator(const Options& options, const Clock* clock,
                         ShardLinks* links, Archive* archive)
    : options_(options),
      clock_(clock),
      links_(links),
      archive_(archive),
      begun_(clock->Now()),
      last_tick_(begun_),
      incarnations_from_(options.incarnations_from),
      ps_addresses_(options.num_ps),
      memory_limits_(options.num_ps),
      shard_nonces_(options.num_ps),
      generation_begun_(begun_) {
  state_.set_phase(proto::STARTING);
  ps_addresses_[0] = options.address;
  memory_limits_[0] = options.memory_limit_bytes;
  shard_nonces_[0] = options.shard_nonce;
  if (archive_ != nullptr) TakeUp(options.journal);
}

// Begins where the journal says that the job is.
void Coordinator::TakeUp(const proto::Journal& journal) {
  journal_ = journal;
  incarnations_from_ = journal.generation() * kIncarnationsPerGeneration;
  generation_ = std::max(generation_, Generation(journal.generation()));
  if (journal.has_declaration()) {
    digests_from_ = "the job of this checkpoint directory";
    job_digest_ = journal.job_digest();
    data_digest_ = journal.data_digest();
    declaration_ = journal.declaration();
  }
  if (journal.finished() && !journal.checkpoints().empty()) {
    return FinishByJournal();
  }
  if (declaration_.has_value()) {
    // The cluster may be another.
    absl::Status status = Resolve(*declaration_).status();
    status.Update(SetDeclaration(*declaration_));
    if (!status.ok()) {
      return Fail(absl::StrCat(
          "what was declared when the job began does not fit this cluster: ",
          status.message()));
    }
  }
  BeginGeneration("/job:ps/task:0 has started");
}

void Coordinator::FinishByJournal() {
  durable_step_ = journal_.checkpoints().rbegin()->step();
  committed_ = GlobalStep(durable_step_);
  Finish();
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
  const uint32_t chiefs = options_.has_chief ? 1 : 0;
  const uint32_t plain_workers = options_.num_workers - chiefs;
  // [L5] One from beyond the ClusterSpec.
  const bool joins = continues() && task.job == kWorkerJob &&
                     task.index < declaration_->num_workers() - chiefs;
  if ((task.job == kWorkerJob && task.index < plain_workers) || joins) {
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
  return absl::StrCat(task.ToString(), " (", session->second.process,
                      session->second.alive || ended() ? ")" : ", lost)");
}

absl::StatusOr<Coordinator::Session*> Coordinator::FindSession(
    const proto::Sender& sender) {
  if (sender.generation() != generation_.value()) {
    return absl::AbortedError(absl::StrCat(
        ToTaskId(sender.task()).ToString(), " speaks in generation ",
        sender.generation(), ", the job is in ", generation_.value()));
  }
  return FindLife(sender);
}

absl::StatusOr<Coordinator::Session*> Coordinator::FindLife(
    const proto::Sender& sender) {
  const TaskId task = ToTaskId(sender.task());
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
    digests_from_ = task.ToString();
    job_digest_ = request.job_digest();
    data_digest_ = request.data_digest();
    return absl::OkStatus();
  }
  const auto compare = [&](const char* what, const std::string& mine,
                           const std::string& theirs) {
    if (mine == theirs) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(
        task.ToString(), " has ", what, " ", mine, ", ", *digests_from_,
        " has ", theirs, " (SHA-256): ",
        journal_.has_declaration()
            ? "go on with the same, or train in another checkpoint directory, "
              "from the first values or, with --warm_start, from those of a "
              "checkpoint"
            : "start all workers with the same"));
  };
  if (absl::Status status =
          compare("job file", request.job_digest(), job_digest_);
      !status.ok()) {
    return status;
  }
  return compare("data", request.data_digest(), data_digest_);
}

absl::Status Coordinator::CheckCluster(
    const TaskId& task, const proto::RegisterRequest& request) const {
  if (request.protocol_version() != kProtocolVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat(task.ToString(), " speaks protocol version ",
                     request.protocol_version(), ", /job:ps/task:0 speaks ",
                     kProtocolVersion));
  }
  if (absl::Status status = CheckTask(task); !status.ok()) return status;
  for (const std::string* text :
       {&request.process(), &request.address(), &request.job_digest(),
        &request.data_digest()}) {
    if (text->size() <= kMaxTextBytes) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(task.ToString(), ": process, address or digest of ",
                     text->size(), " bytes, at most ", kMaxTextBytes));
  }
  const bool more_workers =
      continues() && request.num_workers() > options_.num_workers;
  if (request.num_ps() != options_.num_ps ||
      (request.num_workers() != options_.num_workers && !more_workers)) {
    return absl::FailedPreconditionError(
        absl::StrCat("the ClusterSpec of ", task.ToString(), " has ",
                     request.num_ps(), " ps and ", request.num_workers(),
                     " worker tasks, that of /job:ps/task:0 ", options_.num_ps,
                     " and ", options_.num_workers));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Coordinator::FindObstacle(
    const proto::RegisterRequest& request) const {
  const TaskId task = ToTaskId(request.sender().task());
  // [L5] Only the declaration tells whether others may join.
  if (!declaration_.has_value() && !ended() && task.job == kWorkerJob &&
      task.index >= options_.num_workers - (options_.has_chief ? 1 : 0) &&
      request.num_workers() > options_.num_workers) {
    return absl::StrCat("the declaration by ", Describe(WorkerOfReplica(0)),
                        ", which says whether others may join");
  }
  if (absl::Status status = CheckCluster(task, request); !status.ok()) {
    return status;
  }
  if (state_.phase() == proto::FAILED) {
    return absl::AbortedError(state_.reason());
  }
  // [R5] An answer names the generation.
  if (beginning_) return WaitingFor();
  if (IsAdmitted(request)) return "";
  const uint64_t known = request.sender().generation();
  if (known != 0 && (archive_ == nullptr || known > generation_.value())) {
    return absl::FailedPreconditionError(absl::StrCat(
        task.ToString(), " was in generation ", known,
        " of a job that this coordinator does not know",
        archive_ == nullptr
            ? ": it has started anew, and has no --checkpoint_dir"
            : absl::StrCat("; its own is in ", generation_.value())));
  }
  const auto found = sessions_.find(task);
  if (found == sessions_.end() || !found->second.alive) return "";
  return absl::StrCat("the end of the lease of ", Describe(task));
}

// A message that comes again after its process has left revives nobody.
bool Coordinator::IsAdmitted(const proto::RegisterRequest& request) const {
  const auto found = sessions_.find(ToTaskId(request.sender().task()));
  return found != sessions_.end() && found->second.nonce == request.nonce();
}

proto::RegisterResponse Coordinator::RegisterAnswer(const TaskId& task) const {
  proto::RegisterResponse response;
  response.set_incarnation(sessions_.at(task).incarnation.value());
  response.set_generation(generation_.value());
  response.set_lease_ms(absl::ToInt64Milliseconds(options_.lease));
  return response;
}

// [L1] The only place where anybody is admitted: by a call that has just come
// in. A parked one may be that of a process which has died meanwhile.
void Coordinator::Register(const proto::RegisterRequest& request,
                           Reply<proto::RegisterResponse> reply) {
  const TaskId task = ToTaskId(request.sender().task());
  const absl::StatusOr<std::string> obstacle = FindObstacle(request);
  if (!obstacle.ok()) return reply(obstacle.status());
  if (!obstacle->empty()) return Park(request, *obstacle, std::move(reply));
  if (!IsAdmitted(request)) {
    if (IsWorker(task)) {
      if (absl::Status status = CheckDigests(task, request); !status.ok()) {
        return reply(status);
      }
    }
    Admit(task, request);
    if (beginning_) return Park(request, WaitingFor(), std::move(reply));
  }
  reply(RegisterAnswer(task));
  OnPresent();
}

// What has waited for somebody to be here goes on.
void Coordinator::OnPresent() {
  RestoreWhenReady();
  StartClockWhenReady();
  Proceed();
  if (tickets_.has_value()) GrantTickets();
}

// The place of `task` is free.
void Coordinator::Admit(const TaskId& task,
                        const proto::RegisterRequest& request) {
  const auto found = sessions_.find(task);
  if (found != sessions_.end() && IsWorker(task) && created_ &&
      !found->second.fenced && !ended()) {
    ShutOut(task, &found->second);
  }
  Session session;
  Incarnation& last = last_incarnation_[task];
  if (last.value() == 0) last = Incarnation(incarnations_from_);
  last = last.next();
  session.incarnation = last;
  session.nonce = request.nonce();
  session.process = request.process();
  session.expires = clock_->Now() + options_.lease;
  if (IsWorker(task)) session.clock = live_workers_.slowest();
  sessions_[task] = session;
  SetAlive(task, &sessions_[task], true);
  if (IsWorker(task)) ReplaceReporter(task);
  if (task.job != kPsJob) return;
  ps_addresses_[task.index] = request.address();
  memory_limits_[task.index] = request.memory_limit_bytes();
  links_->SetAddress(task.index, request.address());
  const uint64_t before =
      std::exchange(shard_nonces_[task.index], request.nonce());
  // [R4] A shard that may have had state of this generation has lost it.
  const bool restored = created_ || broadcast_.kind == Broadcast::kRestore;
  if (restored && before != request.nonce()) {
    BeginGeneration(absl::StrCat(task.ToString(), " (", request.process(),
                                 ") has started anew, without its state"));
  }
}

void Coordinator::SetAlive(const TaskId& task, Session* session, bool alive) {
  session->alive = alive;
  if (alive) {
    leases_run_until_ = std::min(leases_run_until_, session->expires);
    lost_.erase(task);
  } else {
    lost_.insert(task);
  }
  if (!IsWorker(task)) return;
  if (alive) {
    live_workers_.Set(task, session->clock);
  } else {
    live_workers_.Remove(task);
  }
}

void Coordinator::Park(const proto::RegisterRequest& request,
                       const std::string& obstacle,
                       Reply<proto::RegisterResponse> reply) {
  const Registrant registrant = {ToTaskId(request.sender().task()),
                                 request.nonce()};
  // Who asks again does not wait for the earlier answer any more.
  auto earlier = parked_registers_.Take(registrant);
  if (request.wait_ms() == 0 || parked_registers_.full()) {
    reply(NotAdmitted(obstacle));
  } else {
    const absl::Time now = clock_->Now();
    parked_registers_.Park(
        registrant, std::move(reply),
        std::min(ParkedUntil(now, request.wait_ms()), now + kMaxRegisterPark),
        request);
  }
  for (auto& parked : earlier) {
    parked.reply(absl::UnavailableError("asked again"));
  }
}

void Coordinator::RetryRegisters(std::optional<TaskId> task) {
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

void Coordinator::Answer(std::vector<ParkedRegisters::Call> registers) {
  for (auto& parked : registers) {
    const absl::StatusOr<std::string> obstacle = FindObstacle(parked.request);
    if (!obstacle.ok()) {
      parked.reply(obstacle.status());
    } else if (!obstacle->empty()) {
      parked.reply(NotAdmitted(*obstacle));
    } else if (!IsAdmitted(parked.request)) {
      parked.reply(NotAdmitted("the task to ask again"));
    } else {
      parked.reply(RegisterAnswer(parked.key.first));
    }
  }
}

bool Coordinator::IsFenced(const proto::Sender& sender) const {
  const auto found = sessions_.find(ToTaskId(sender.task()));
  if (found == sessions_.end()) return false;
  const Session& session = found->second;
  return sender.incarnation() < session.incarnation.value() ||
         (sender.incarnation() == session.incarnation.value() &&
          session.fenced);
}

bool Coordinator::MayWaitForPlace(const proto::RegisterRequest& request) const {
  return request.has_waited_ms() &&
         absl::Milliseconds(request.waited_ms()) < options_.lease;
}

// [L2]
void Coordinator::RenewLease(const proto::RenewLeaseRequest& request,
                             Reply<proto::RenewLeaseResponse> reply) {
  const TaskId task = ToTaskId(request.sender().task());
  const auto found = sessions_.find(task);
  const bool own =
      found != sessions_.end() &&
      found->second.incarnation.value() == request.sender().incarnation();
  if (IsFenced(request.sender()) && (!own || !ended())) {
    return reply(absl::AbortedError(absl::StrCat(
        task.ToString(), " with incarnation ", request.sender().incarnation(),
        " has been shut out: its lease of ",
        absl::FormatDuration(options_.lease),
        " had run out, or another has taken its place; start it anew")));
  }
  if (!own) {
    return reply(absl::NotFoundError(
        absl::StrCat(task.ToString(), " has no session with incarnation ",
                     request.sender().incarnation(), ": register first")));
  }
  Session& session = found->second;
  const absl::Time now = clock_->Now();
  if (request.has_input_wait()) session.input_wait = request.input_wait();
  if (!session.left) {
    session.expires = now + options_.lease;
    if (!session.alive && !ended()) {
      LOG(INFO) << Describe(task) << " is back";
      SetAlive(task, &session, true);
      session.lost_at = absl::InfiniteFuture();
      missing_until_ = now;
      OnPresent();
    }
    const Registrant own = {task, session.nonce};
    for (auto& parked :
         parked_registers_.TakeIf([&](const ParkedRegisters::Call& p) {
           return p.key.first == task && p.key != own &&
                  !MayWaitForPlace(p.request);
         })) {
      parked.reply(absl::AlreadyExistsError(
          absl::StrCat("the place of ", task.ToString(), " is taken by ",
                       session.process, ", which is alive")));
    }
  }
  const bool knows = request.sender().generation() == generation_.value() &&
                     request.known_phase() == state_.phase();
  if (!knows || ended() || request.wait_ms() == 0 || parked_renewals_.full()) {
    return reply(RenewalAnswer(&session));
  }
  const absl::Duration longest = options_.lease / 3;
  parked_renewals_.Park(
      ToWorkerLife(request.sender()), std::move(reply),
      std::min(ParkedUntil(now, request.wait_ms()), now + longest), request);
}

proto::RenewLeaseResponse Coordinator::RenewalAnswer(Session* session) {
  if (ended()) session->told = true;
  proto::RenewLeaseResponse response;
  response.set_generation(generation_.value());
  *response.mutable_state() = state_;
  response.set_durable_step(durable_step_);
  return response;
}

void Coordinator::Answer(std::vector<ParkedRenewals::Call> renewals) {
  for (auto& parked : renewals) {
    const auto found = sessions_.find(parked.key.worker);
    if (found == sessions_.end() ||
        found->second.incarnation != parked.key.incarnation) {
      RenewLease(parked.request, std::move(parked.reply));  // tells why
      continue;
    }
    parked.reply(RenewalAnswer(&found->second));
  }
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
    if (!variable.compression().variables().empty()) {
      return error("compression.variables is for job files");
    }
  }

  const absl::StatusOr<Replicas> replicas =
      ResolveConsistency(ConsistencyFieldsOf(resolved), options_.num_workers);
  if (!replicas.ok()) return replicas.status();
  FillIn(*replicas, resolved.mutable_consistency());
  FillIn(*replicas, resolved.mutable_lost_workers());
  resolved.set_examples(replicas->examples);
  resolved.set_num_workers(replicas->total);
  const absl::StatusOr<uint64_t> tickets = ResolveTickets(
      *replicas, resolved.total_steps(), resolved.total_tickets());
  if (!tickets.ok()) return tickets.status();
  resolved.set_total_tickets(*tickets);
  if (resolved.has_loss_scale()) {
    *resolved.mutable_loss_scale() = WithDefaults(resolved.loss_scale());
  }
  // Memory for checkpoints is kept exactly where there can be any.
  if (archive_ == nullptr) {
    resolved.clear_checkpoints();
  } else {
    resolved.mutable_checkpoints();
  }
  return resolved;
}

void Coordinator::Declare(const proto::DeclareRequest& request,
                          Reply<proto::DeclareResponse> reply) {
  if (request.sender().incarnation() == 0 && declaration_.has_value()) {
    if (absl::Status status = CompareDeclaration(request); !status.ok()) {
      return reply(status);
    }
    return reply(proto::DeclareResponse());
  }
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
    if (absl::Status same = CheckSameDeclaration(
            ToTaskId(request.sender().task()), *declaration_, *resolved);
        !same.ok()) {
      return reply(same);
    }
  } else {
    if (absl::Status status = SetDeclaration(*resolved); !status.ok()) {
      return reply(status);
    }
    if (archive_ != nullptr) {
      ChangeJournal(
          [this](proto::Journal* journal) {
            *journal->mutable_declaration() = *declaration_;
            journal->set_job_digest(job_digest_);
            journal->set_data_digest(data_digest_);
          },
          [this] { RestoreWhenReady(); });
    }
  }
  proto::DeclareResponse response;
  response.set_generation(generation_.value());
  reply(std::move(response));
  RetryRegisters(std::nullopt);
  RestoreWhenReady();
}

absl::Status Coordinator::CompareDeclaration(
    const proto::DeclareRequest& request) const {
  const absl::StatusOr<proto::Declaration> resolved =
      Resolve(request.declaration());
  if (!resolved.ok()) return resolved.status();
  return CheckSameDeclaration(ToTaskId(request.sender().task()), *declaration_,
                              *resolved);
}

absl::Status Coordinator::SetDeclaration(const proto::Declaration& resolved) {
  absl::StatusOr<std::vector<proto::Slice>> slices =
      PlaceVariables(resolved, options_.num_ps);
  if (!slices.ok()) return slices.status();
  slices_ = *std::move(slices);
  declaration_ = resolved;
  return absl::OkStatus();
}

// [G4]
void Coordinator::RestoreWhenReady() {
  if (state_.phase() != proto::STARTING || beginning_ ||
      !declaration_.has_value() || broadcast_.kind != Broadcast::kNone ||
      (archive_ != nullptr && !journal_.has_declaration())) {
    return;
  }
  for (uint32_t ps = 1; ps < options_.num_ps; ++ps) {
    const auto session = sessions_.find({kPsJob, ps});
    if (session == sessions_.end() || !session->second.alive) return;
  }
  for (uint32_t ps = 0; ps < options_.num_ps; ++ps) {
    const auto plan =
        PlanMemory(*declaration_, slices_, ps, memory_limits_[ps]);
    if (!plan.ok()) return Fail(std::string(plan.status().message()));
  }
  restore_.Clear();
  *restore_.mutable_sender() = Self();
  *restore_.mutable_declaration() = *declaration_;
  restore_.mutable_slices()->Assign(slices_.begin(), slices_.end());
  restore_.set_receipt_key(
      Receipts::MakeKey(options_.receipt_secret, generation_));
  receipts_.emplace(restore_.receipt_key(), generation_, *declaration_,
                    restore_.slices(), options_.num_ps);
  if (archive_ != nullptr) {
    restore_.set_directory_nonce(journal_.directory_nonce());
  }
  if (from_.has_name()) {
    *restore_.mutable_checkpoint() = from_.name();
  } else {
    restore_.set_warm_start(options_.warm_start);
  }
  if (declaration_->has_loss_scale() && !asynchronous()) {
    restore_.set_loss_scale(
        LossScaler(declaration_->loss_scale(), from_.position()).scale());
  }
  restore_.set_wait_ms(absl::ToInt64Milliseconds(DiskPark()));
  if (RestoreNeedsDisk()) disk_watch_.Begin(options_.num_ps, clock_->Now());
  StartBroadcast(Broadcast::kRestore);
}

bool Coordinator::RestoreNeedsDisk() const {
  return restore_.has_checkpoint() || !restore_.warm_start().empty();
}

void Coordinator::StartClockWhenReady() {
  if (state_.phase() != proto::TRAINING || training_begun_.has_value()) return;
  const auto& mode = declaration_->consistency().synchronous();
  size_t needed = 1;
  if (!asynchronous()) {
    needed = std::min({mode.replicas_to_aggregate(), mode.total_num_replicas(),
                       options_.num_workers});
  }
  if (continues() && generation_.value() > 1) {
    // Others may be lost for good since the job began.
    needed = declaration_->lost_workers().min_replicas();
  }
  const size_t joined =
      std::count_if(sessions_.begin(), sessions_.end(),
                    [&](const auto& s) { return IsWorker(s.first); });
  if (joined < needed) return;
  training_begun_ = last_commit_ = clock_->Now();
  // The first step waits for those that it could begin with.
  CountMembers();
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
      parked_placements_.full()) {
    return reply(PlacementAnswer());
  }
  parked_placements_.Park({}, std::move(reply),
                          ParkedUntil(clock_->Now(), request.wait_ms()));
}

void Coordinator::AnswerPlacements() {
  for (auto& parked : created_ || ended()
                          ? parked_placements_.TakeAll()
                          : parked_placements_.TakeDue(clock_->Now())) {
    parked.reply(PlacementAnswer());
  }
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
                           Broadcast::Shard{false, broadcast_.begun, ""});
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
      case Broadcast::kRestore:
        shard.due += DiskPark();
        SendTo(ps, restore_, [this, number, ps](const auto& response) {
          if (response.ok() && response->pending()) {
            return OnRestorePending(number, ps, response->progress());
          }
          OnShardReply(number, ps, response.status());
        });
        break;
      case Broadcast::kCommit:
        SendTo(ps, commit_, answered);
        break;
      case Broadcast::kFence:
        SendTo(ps, fence_, [this, number, ps](const auto& response) {
          if (response.ok() && IsAwaited(number, ps)) OnApplied(*response);
          OnShardReply(number, ps, response.status());
        });
        break;
      case Broadcast::kResolve:
        SendTo(ps, resolve_, answered);
        break;
      case Broadcast::kHold:
        SendTo(ps, hold_, [this, number, ps](const auto& response) {
          if (response.ok() && IsAwaited(number, ps)) OnApplied(*response);
          OnShardReply(number, ps, response.status());
        });
        break;
      case Broadcast::kSave:
        SendTo(ps, save_, answered);
        break;
      case Broadcast::kEnd: {
        proto::EndRequest end;
        *end.mutable_sender() = Self();
        *end.mutable_state() = state_;
        SendTo(ps, end, answered);
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

void Coordinator::OnRestorePending(uint64_t broadcast, uint32_t ps,
                                   const proto::DiskProgress& progress) {
  if (!IsAwaited(broadcast, ps)) return;
  const absl::Time now = clock_->Now();
  disk_watch_.OnProgress(ps, progress, now);
  broadcast_.shards[ps].due = now;  // with the next tick
}

void Coordinator::OnShardReply(uint64_t broadcast, uint32_t ps,
                               const absl::Status& status) {
  if (!IsAwaited(broadcast, ps)) return;
  Broadcast::Shard& shard = broadcast_.shards[ps];
  if (!status.ok()) {
    if (IsTransient(status)) {
      shard.due = clock_->Now() + kRetryAfter;
      if (shard.trouble != status.message()) {
        shard.trouble = std::string(status.message());
        LOG(WARNING) << "/job:ps/task:" << ps << " is asked again: " << status;
      }
      return;
    }
    const bool damaged = absl::IsDataLoss(status) || absl::IsNotFound(status);
    if (broadcast_.kind == Broadcast::kRestore && restore_.has_checkpoint() &&
        damaged) {
      if (DropCheckpoint(status)) {
        BeginGeneration(absl::StrCat("/job:ps/task:", ps,
                                     " could not read its checkpoint"));
      }
      return;
    }
    if (broadcast_.kind != Broadcast::kEnd) {
      Fail(absl::StrCat("/job:ps/task:", ps,
                        " refused to go on: ", status.ToString()));
      return;
    }
  }
  shard.acked = true;
  if (broadcast_.kind == Broadcast::kRestore) {
    disk_watch_.OnDone(ps, clock_->Now());
  }
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
    case Broadcast::kRestore:
      return OnRestored();
    case Broadcast::kCommit:
      return OnCommitted();
    case Broadcast::kFence:
      return StartResolve();
    case Broadcast::kResolve:
      return OnResolved();
    case Broadcast::kHold:
      return OnHeld();
    case Broadcast::kSave:
      OnPinned();
      return Proceed();
    case Broadcast::kNone:
    case Broadcast::kEnd:
      return;
  }
}

// [G5]
void Coordinator::OnRestored() {
  created_ = true;
  disk_watch_.End();
  state_.set_phase(proto::TRAINING);
  const proto::Position& position = from_.position();
  save_schedule_.Begin(declaration_->checkpoints(), asynchronous(),
                       position.step(), clock_->Now());
  if (declaration_->has_loss_scale()) {
    loss_scaler_.emplace(declaration_->loss_scale(), position);
  }
  divergence_.emplace(*declaration_, position);
  if (!training_begun_.has_value()) {
    training_seconds_before_ = position.training_seconds();
  }
  if (declaration_->examples() == proto::BY_TICKET) {
    tickets_.emplace(declaration_->total_tickets(), position.next_ticket(),
                     std::set<uint64_t>(position.returned_tickets().begin(),
                                        position.returned_tickets().end()));
  }
  if (!asynchronous()) OpenStep(committed_);
  step_opened_ = clock_->Now();
  StartClockWhenReady();
  AnswerPlacements();
  Answer(parked_renewals_.TakeAll());
  if (AllMade()) return Conclude();
  ShutOutLost();
  Proceed();
}

// [L3] Those whose leases ran out while the job was STARTING.
void Coordinator::ShutOutLost() {
  if (!continues()) return;
  std::vector<TaskId> lost;
  for (const auto& [task, session] : sessions_) {
    if (IsWorker(task) && !session.alive && !session.fenced) {
      lost.push_back(task);
    }
  }
  for (const TaskId& task : lost) ShutOut(task, &sessions_.at(task));
}

// ---- Waits, leases and the end ----

// A worker may see the last version on every shard, and leave, before the
// coordinator has heard that they hold it.
bool Coordinator::AllStepsFixed() const {
  return created_ && (asynchronous() ? tickets_->all_spent()
                                     : step_->number().value() >=
                                           declaration_->total_steps());
}

bool Coordinator::AllMade() const {
  return created_ &&
         (asynchronous() ? tickets_->all_spent()
                         : committed_.value() >= declaration_->total_steps());
}

std::string Coordinator::JoinSome(const std::vector<std::string>& names) {
  if (names.size() <= kMostNamed) return absl::StrJoin(names, ", ");
  return absl::StrCat(
      absl::StrJoin(names.begin(), names.begin() + kMostNamed, ", "), " and ",
      names.size() - kMostNamed, " more");
}

std::string Coordinator::WaitingFor() const {
  if (beginning_) {
    return absl::StrCat("the journal of /job:ps/task:0",
                        archive_trouble_.empty() ? "" : ": ", archive_trouble_);
  }
  if (broadcast_.kind != Broadcast::kNone &&
      broadcast_.kind != Broadcast::kEnd) {
    std::vector<std::string> silent;
    for (uint32_t ps = 0; ps < broadcast_.shards.size(); ++ps) {
      if (!broadcast_.shards[ps].acked) {
        silent.push_back(DescribeShard(ps,
                                       broadcast_.kind == Broadcast::kRestore
                                           ? disk_watch_.Describe(ps)
                                           : "",
                                       broadcast_.shards[ps].trouble));
      }
    }
    std::string what = "the shutting out of lost workers";
    switch (broadcast_.kind) {
      case Broadcast::kRestore:
        what = restore_.has_checkpoint()
                   ? absl::StrCat("the state of step ",
                                  restore_.checkpoint().step())
                   : "the making of variables";
        break;
      case Broadcast::kCommit:
        what = absl::StrCat("the commit of step ", commit_.step());
        break;
      case Broadcast::kHold:
      case Broadcast::kSave:
        what = "the taking of a checkpoint";
        break;
      default:
        break;
    }
    return absl::StrCat(what, " at ", absl::StrJoin(silent, ", "));
  }
  if (state_.phase() == proto::STARTING) {
    std::vector<std::string> missing;
    for (uint32_t ps = 1; ps < options_.num_ps; ++ps) {
      const TaskId task{kPsJob, ps};
      const auto session = sessions_.find(task);
      if (session == sessions_.end() || !session->second.alive) {
        missing.push_back(Describe(task));
      }
    }
    if (!declaration_.has_value()) {
      missing.push_back(
          absl::StrCat("the declaration by ", Describe(WorkerOfReplica(0))));
    }
    return absl::StrJoin(missing, ", ");
  }
  if (state_.phase() == proto::TRAINING && concluding_since_.has_value()) {
    const std::vector<std::string> writing = UnwrittenShares();
    return absl::StrCat("the last checkpoint",
                        writing.empty() ? "" : ", written by ",
                        absl::StrJoin(writing, ", "));
  }
  if (state_.phase() == proto::TRAINING && continues() && TooFewWorkers()) {
    return absl::StrCat(declaration_->lost_workers().min_replicas(),
                        " workers, of which ", live_workers_.size(),
                        " are there");
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
    return JoinSome(missing);
  }
  if (state_.phase() == proto::DONE) {
    std::vector<std::string> present = LateTasks();
    for (const auto& [task, session] : sessions_) {
      if (IsWorker(task) && session.alive) present.push_back(Describe(task));
    }
    if (present.empty()) return "";
    return absl::StrCat("the leave of ", JoinSome(present));
  }
  return "";
}

std::vector<std::string> Coordinator::UnwrittenShares() const {
  std::vector<std::string> writing;
  for (uint32_t ps = 0; saving_.has_value() && ps < saving_->shards.size();
       ++ps) {
    if (saving_->shards[ps].done) continue;
    writing.push_back(DescribeShard(ps, disk_watch_.Describe(ps),
                                    saving_->shards[ps].trouble));
  }
  return writing;
}

void Coordinator::Tick() {
  const absl::Time now = clock_->Now();
  JudgeLeases(now);
  JudgeTimeouts(now);
  last_tick_ = now;
  if (journal_due_ <= now) WriteJournal();
  if (beginning_ && begin_due_ <= now) ChooseCheckpoint();
  SendDue();
  AskForFiles();
  Proceed();
  AnswerPlacements();
  if (auto due = parked_contributions_.TakeDue(now); !due.empty()) {
    // The same for all of them, and as long as the list of workers.
    const std::string waiting_for = WaitingFor();
    for (auto& parked : due) parked.reply(NotYetAnswer(waiting_for));
  }
  Answer(parked_tickets_.TakeDue(now));
  Answer(parked_registers_.TakeDue(now));
  Answer(parked_renewals_.TakeDue(now));
  Answer(parked_checkpoints_.TakeDue(now));
}

// [L3]
void Coordinator::JudgeLeases(absl::Time now) {
  if (now - last_tick_ > options_.lease / 2) {
    // This process itself was held up, and may not have heard the others.
    for (auto& [task, session] : sessions_) {
      session.expires = std::max(session.expires, now + options_.lease);
    }
    judged_from_ = now;
    return;
  }
  // Who waits for the answer to its Register cannot renew.
  for (auto* parked = parked_registers_.Next(0); parked != nullptr;
       parked = parked_registers_.Next(parked->number)) {
    const auto& [task, nonce] = parked->key;
    const auto found = sessions_.find(task);
    if (found != sessions_.end() && found->second.nonce == nonce) {
      found->second.expires = now + options_.lease;
    }
  }
  std::vector<TaskId> lost;
  if (leases_run_until_ <= now) {
    leases_run_until_ = absl::InfiniteFuture();
    for (const auto& [task, session] : sessions_) {
      if (!session.alive) continue;
      if (session.expires <= now) {
        lost.push_back(task);
      } else {
        leases_run_until_ = std::min(leases_run_until_, session.expires);
      }
    }
  }
  for (const TaskId& task : lost) {
    Session& session = sessions_.at(task);
    if (!session.alive) continue;  // left, from inside an answer
    SetAlive(task, &session, false);
    session.lost_at = now;
    OnLost(task, &session);
    RetryRegisters(task);
  }
  EndWhenReady();
}

bool Coordinator::continues() const {
  return declaration_.has_value() &&
         declaration_->lost_workers().policy() == proto::LostWorkers::CONTINUE;
}

bool Coordinator::TooFewWorkers() const {
  return live_workers_.size() < declaration_->lost_workers().min_replicas();
}

// A task is silent, or has left.
void Coordinator::OnLost(const TaskId& task, Session* session) {
  if (ended() || (AllStepsFixed() && IsWorker(task))) return;
  const std::string who =
      absl::StrCat(task.ToString(), " (", session->process, ")");
  const std::string what =
      session->left
          ? absl::StrCat(who, " left before the end")
          : absl::StrCat(who, " is lost: nothing was heard of it for ",
                         absl::FormatDuration(options_.lease));
  if (IsWorker(task) && continues()) {
    if (created_) ShutOut(task, session);
    return;
  }
  if (!IsWorker(task) && archive_ == nullptr) {
    return Fail(absl::StrCat(what,
                             ", and there are no checkpoints to go on "
                             "from (--checkpoint_dir)"));
  }
  if (RecoveryTimeout() == absl::ZeroDuration()) return Fail(what);
  LOG(WARNING) << what << "; the job waits for it, "
               << absl::FormatDuration(RecoveryTimeout()) << " at most";
}

Coordinator::Lost Coordinator::LostTasks() const {
  Lost lost;
  // Those of workers, the latest first; none is missed for longer than the
  // generation, for the one before may not have needed it any more.
  std::vector<absl::Time> losses;
  const bool wait_for_workers =
      !AllStepsFixed() && (!continues() || (created_ && TooFewWorkers()));
  for (const TaskId& task : lost_) {
    if (IsWorker(task) && !wait_for_workers) continue;
    const Session& session = sessions_.at(task);
    lost.tasks.push_back(task);
    if (IsWorker(task)) {
      losses.push_back(std::max(session.lost_at, generation_begun_));
    } else {
      lost.since = std::min(lost.since, session.lost_at);
    }
  }
  if (losses.empty()) return lost;
  std::sort(losses.begin(), losses.end(), std::greater<>());
  // With CONTINUE, the loss that left too few.
  const size_t missed =
      continues()
          ? declaration_->lost_workers().min_replicas() - live_workers_.size()
          : losses.size();
  lost.since =
      std::min(lost.since, losses[std::min(missed, losses.size()) - 1]);
  return lost;
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

absl::Duration Coordinator::RecoveryTimeout() const {
  return declaration_.has_value() &&
                 declaration_->timeouts().has_recovery_seconds()
             ? absl::Seconds(declaration_->timeouts().recovery_seconds())
             : options_.recovery_timeout;
}

absl::Duration Coordinator::DiskTimeout() const {
  return declaration_.has_value() && declaration_->timeouts().has_disk_seconds()
             ? absl::Seconds(declaration_->timeouts().disk_seconds())
             : kDefaultDiskTimeout;
}

absl::Duration Coordinator::DiskPark() const {
  return std::min(kLongestDiskPark, DiskTimeout() / 4);
}

// It may take as long as it moves.
void Coordinator::JudgeRestore(absl::Time now) {
  const absl::Duration still =
      now - std::max(disk_watch_.standing_since(), missing_until_);
  if (still <= DiskTimeout()) return;
  Fail(absl::StrCat("nothing was read for ", absl::FormatDuration(still),
                    ": waited for ", WaitingFor()));
}

// [C5] So may the last checkpoint. How often it is tried is AbandonSave's.
void Coordinator::JudgeEnd(absl::Time now) {
  const bool writing = saving_.has_value() && !saving_->shards.empty();
  const absl::Time since =
      writing ? disk_watch_.standing_since()
              : std::max({*concluding_since_, save_schedule_.begun(),
                          save_not_before_});
  const absl::Duration limit =
      writing ? DiskTimeout() : std::max(StepTimeout(), RecoveryTimeout());
  const absl::Duration still = now - std::max(since, missing_until_);
  if (still <= limit) return;
  FailNow(absl::StrCat(
      "the job could not end: ",
      writing ? "nothing was written for " : "no checkpoint was begun for ",
      absl::FormatDuration(still), "; waited for ", WaitingFor()));
}

void Coordinator::JudgeTimeouts(absl::Time now) {
  if (now - judged_from_ < options_.lease) return;
  const absl::Duration start = StartTimeout();
  const absl::Duration step = StepTimeout();
  if (ended()) {
    if (state_.phase() == proto::DONE && now - done_at_ > step) {
      // They have all that they came for; the job ends without them.
      for (auto& [task, session] : sessions_) {
        if (!IsWorker(task)) continue;
        SetAlive(task, &session, false);
        session.left = true;
      }
      EndWhenReady();
    }
    return;
  }
  if (const Lost lost = LostTasks(); !lost.tasks.empty()) {
    missing_until_ = now;
    if (now - lost.since <= RecoveryTimeout()) return;
    std::vector<std::string> names;
    for (const TaskId& task : lost.tasks) names.push_back(Describe(task));
    return Fail(
        absl::StrCat(absl::StrJoin(names, ", "), ": nothing was heard for ",
                     absl::FormatDuration(now - lost.since + options_.lease),
                     ", and none came in its place"));
  }
  if (concluding_since_.has_value()) return JudgeEnd(now);
  if (broadcast_.kind == Broadcast::kRestore && disk_watch_.active()) {
    return JudgeRestore(now);
  }
  if (state_.phase() == proto::STARTING &&
      (generation_.value() > 1 || training_begun_.has_value())) {
    if (now - std::max(generation_begun_, missing_until_) >
        std::max(start, RecoveryTimeout())) {
      Fail(
          absl::StrCat("the job did not come back within ",
                       absl::FormatDuration(std::max(start, RecoveryTimeout())),
                       ": waited for ", WaitingFor()));
    }
    return;
  }
  if (!training_begun_.has_value()) {
    const bool was_restored = created_ && RestoreNeedsDisk();
    const absl::Time since = generation_.value() > 1 || was_restored
                                 ? std::max(step_opened_, missing_until_)
                                 : begun_;
    if (now - since > start) {
      Fail(absl::StrCat("the job did not start within ",
                        absl::FormatDuration(start), ": waited for ",
                        WaitingFor()));
    }
    return;
  }
  if (now - std::max({step_opened_, *training_begun_, missing_until_}) <=
      step) {
    return;
  }
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
  // [C5] Whoever starts next believes the disk.
  if (IsFinishing()) {
    LOG_EVERY_N(WARNING, 100)
        << "the job is about to be done, and does not fail: " << reason;
    return;
  }
  FailNow(reason);
}

bool Coordinator::IsFinishing() const {
  return journal_busy_ && journal_in_writing_.finished() &&
         clock_->Now() - journal_begun_ <= DiskTimeout();
}

void Coordinator::FailNow(const std::string& reason) {
  if (ended()) return;
  state_.set_phase(proto::FAILED);
  state_.set_reason(Shorten(reason, kMaxReasonBytes));
  beginning_ = false;
  auto contributions = parked_contributions_.TakeAll();
  for (const auto& parked : contributions) {
    if (!ledger_.Find(parked.key).has_value()) {
      Refuse(parked.key, proto::ABORTED);
    }
  }
  for (auto& parked : contributions) {
    parked.reply(ContributeAnswer(*ledger_.Find(parked.key)));
  }
  saving_.reset();
  disk_watch_.End();
  // What is queued would follow from what is over.
  while (journal_changes_.size() > (journal_busy_ ? 1 : 0)) {
    journal_changes_.pop_back();
  }
  RetryRegisters(std::nullopt);
  Answer(parked_tickets_.TakeAll());
  AnswerPlacements();
  Answer(parked_renewals_.TakeAll());
  Answer(parked_checkpoints_.TakeAll());
  EndWhenReady();
}

// Those that may still come to hear that the job is done: that have not joined,
// for a short job can be done before its last worker has started, and one that
// was finished before this process started has not seen its other ps; that were
// waited for when it ended; and whoever is to write the result.
std::vector<std::string> Coordinator::LateTasks() const {
  std::vector<std::string> late;
  const absl::Time now = clock_->Now();
  for (uint32_t replica = 0; replica < options_.num_workers; ++replica) {
    const TaskId worker = WorkerOfReplica(replica);
    const auto session = sessions_.find(worker);
    if (session == sessions_.end()) {
      if (now - begun_ <= StartTimeout()) late.push_back(Describe(worker));
      continue;
    }
    const Session& of = session->second;
    const bool missed =
        IsReporter(worker) ? !of.left
                           : !continues() && !of.told && of.lost_at <= done_at_;
    if (!of.alive && missed && now - of.lost_at <= RecoveryTimeout()) {
      late.push_back(Describe(worker));
    }
  }
  for (uint32_t ps = 1; ps < options_.num_ps; ++ps) {
    const TaskId task = {kPsJob, ps};
    if (sessions_.count(task) == 0 && now - begun_ <= StartTimeout()) {
      late.push_back(Describe(task));
    }
  }
  return late;
}

// The chief, unless it is lost and the job goes on without it, or it has left.
TaskId Coordinator::ChooseReporter() const {
  const TaskId chief = WorkerOfReplica(0);
  const auto found = sessions_.find(chief);
  const bool comes =
      found == sessions_.end()
          ? !continues()
          : found->second.alive || (!continues() && !found->second.left);
  if (comes) return chief;
  std::optional<TaskId> first;
  for (const auto& [task, session] : sessions_) {
    if (!IsWorker(task) || !session.alive) continue;
    if (!first.has_value() || ReplicaOf(task) < ReplicaOf(*first)) first = task;
  }
  return first.value_or(chief);
}

void Coordinator::SetReporter(const TaskId& worker) {
  state_.mutable_reporter()->set_job(worker.job);
  state_.mutable_reporter()->set_index(worker.index);
  LOG_IF(INFO, created_) << "the job is DONE; " << Describe(worker)
                         << " evaluates the last version, and writes the "
                            "result";
}

void Coordinator::ReplaceReporter(const TaskId& newcomer) {
  if (state_.phase() != proto::DONE || !continues()) return;
  const auto reporter = sessions_.find(ToTaskId(state_.reporter()));
  const bool missing = reporter == sessions_.end() ||
                       (!reporter->second.alive && !reporter->second.left);
  if (missing && !IsReporter(newcomer)) SetReporter(newcomer);
}

// Tells the shards, once no worker needs them any more.
void Coordinator::EndWhenReady() {
  if (!ended() || broadcast_.kind == Broadcast::kEnd) return;
  const bool done = state_.phase() == proto::DONE;
  if (done && (live_workers_.size() > 0 || !LateTasks().empty())) return;
  if (done && created_) {
    const auto reporter = sessions_.find(ToTaskId(state_.reporter()));
    LOG_IF(WARNING, reporter == sessions_.end() || !reporter->second.left)
        << "the job is DONE, but there is no result of it: "
        << Describe(ToTaskId(state_.reporter()))
        << ", which was to write it, is lost";
  }
  StartBroadcast(Broadcast::kEnd);
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
  // It may not have heard of the generation.
  absl::StatusOr<Session*> session = FindLife(request.sender());
  if (!session.ok()) return reply(session.status());
  const TaskId task = ToTaskId(request.sender().task());
  if ((*session)->alive) {
    if (!request.error().empty()) {
      Fail(absl::StrCat(Describe(task),
                        " left before the end: ", request.error()));
    }
    SetAlive(task, *session, false);
    (*session)->left = true;
    (*session)->told = ended() || AllStepsFixed();
    (*session)->lost_at = clock_->Now();
    OnLost(task, *session);
  }
  proto::LeaveResponse response;
  *response.mutable_state() = state_;
  reply(std::move(response));
  RetryRegisters(task);
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
  status.set_version(kVersion);
  status.set_generation(generation_.value());
  *status.mutable_state() = state_;
  // As workers are told: verdicts come before the shards have committed.
  status.set_global_step(step_.has_value() ? step_->number().value()
                                           : committed_.value());
  const absl::Time now = clock_->Now();
  const absl::Time since =
      state_.phase() == proto::DONE ? done_at_
      : training_begun_.has_value()
          ? std::max({step_opened_, *training_begun_, generation_begun_})
          : std::max(begun_, generation_begun_);
  if (now - since > kLate) status.set_waiting_for(WaitingFor());
  progress_.AddTo(&status);
  if (loss_scaler_.has_value()) status.set_loss_scale(loss_scaler_->scale());
  if (training_begun_.has_value()) {
    status.set_training_seconds(
        training_seconds_before_ +
        absl::ToDoubleSeconds(last_commit_ - *training_begun_));
  }
  if (evaluation_.has_value()) *status.mutable_evaluation() = *evaluation_;
  status.set_durable_step(durable_step_);
  status.set_recovered(generation_.value() > 1 ? recovered_ : "");
  status.set_checkpoint_error(checkpoint_error_);
  if (saving_.has_value() && !saving_->shards.empty() &&
      now - disk_watch_.standing_since() > kStandingDisk) {
    status.set_checkpoint_error(
        absl::StrCat("that of step ", saving_->manifest.position().step(),
                     " has stood still for ",
                     absl::FormatDuration(absl::Trunc(
                         now - disk_watch_.standing_since(), absl::Seconds(1))),
                     " at ", absl::StrJoin(UnwrittenShares(), ", ")));
  }
  disk_watch_.AddTo(&status);
  for (const auto& [task, session] : sessions_) {
    proto::TaskStatus& entry = *status.add_tasks();
    entry.mutable_task()->set_job(task.job);
    entry.mutable_task()->set_index(task.index);
    entry.set_incarnation(session.incarnation.value());
    entry.set_process(session.process);
    entry.set_alive(session.alive);
    if (session.input_wait.has_value()) {
      *entry.mutable_input_wait() = *session.input_wait;
    }
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
