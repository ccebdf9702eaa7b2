// SPDX-License-Identifier: Apache-2.0
#include "client/cluster.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "client/call_group.h"
#include "client/client.h"
#include "client/connect.h"
#include "client/context.h"
#include "client/neighbors.h"
#include "client/wire.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/rpc/session.h"

namespace holdfast::client {
namespace {

// A part must leave room for names and shapes in a message.
constexpr int64_t kMaxPartBytes = kMaxMessageBytes / 2;

// Pause before a call that a restarted coordinator has refused is made again.
constexpr absl::Duration kRegistersAgain = absl::Milliseconds(100);

// The addresses of the ps tasks, by index.
std::vector<std::string> PsAddresses(const ClusterSpec& cluster) {
  std::vector<std::string> addresses;
  for (const auto& [index, address] : cluster.jobs().at(kPsJob)) {
    addresses.push_back(address);
  }
  return addresses;
}

// The names of the ps tasks, for errors and the log.
std::vector<std::string> PsNames(const ClusterSpec& cluster) {
  std::vector<std::string> names;
  for (const std::string& address : PsAddresses(cluster)) {
    const auto ps = static_cast<uint32_t>(names.size());
    names.push_back(
        absl::StrCat(TaskId{kPsJob, ps}.ToString(), " (", address, ")"));
  }
  return names;
}

std::unique_ptr<Neighbors> MakeNeighbors(const Cluster::Options& options) {
  if (!options.same_host) return nullptr;
  return std::make_unique<Neighbors>(
      PsNames(options.cluster), options.same_host_dir, options.host_memory);
}

Client::Options ClientOptions(const Cluster::Options& options,
                              const Timing& timing) {
  Client::Options client;
  client.timing = timing;
  client.task = options.task;
  client.only_reads = options.only_reads;
  client.part_bytes = options.part_bytes;
  client.on_waiting = options.on_waiting;
  client.ps_names = PsNames(options.cluster);
  return client;
}

class ClusterImpl : public Cluster {
 public:
  ClusterImpl(Options options, const Timing& timing)
      : options_(std::move(options)),
        wire_(PsAddresses(options_.cluster), options_.credentials,
              {options_.tracer, options_.cluster_tracer},
              MakeNeighbors(options_)),
        client_(ClientOptions(options_, timing), &wire_) {}

  ~ClusterImpl() override {
    // Does nothing after Leave. If the cluster is silent, nothing would answer.
    if (session_ != nullptr && !absl::IsUnavailable(session_->status())) {
      LeaveShortly(absl::StrCat(options_.task.ToString(),
                                " ended without leaving the cluster"));
    }
    session_.reset();
  }

  absl::Status Open() {
    const absl::Time deadline = SteadyNow() + options_.connect_timeout;
    if (client_.member()) {
      HOLDFAST_ASSIGN_OR_RETURN(auto session,
                                Session::Open(SessionOptions(deadline)));
      session_ = std::move(session);
      joined_ = true;
    }
    const absl::Status connected = wire_.AwaitConnected(
        client_.context(), deadline, options_.fail_fast && !client_.member(),
        options_.give_up);
    // There is nothing left to do, as every later call reports.
    if (absl::IsAborted(connected) && state().phase() == proto::STOPPED) {
      return absl::OkStatus();
    }
    if (absl::IsInvalidArgument(connected) || absl::IsCancelled(connected)) {
      // The caller's own mistake, or wish to give up, does not end the job for
      // the others.
      LeaveShortly("");
    } else if (!connected.ok()) {
      LeaveShortly(absl::StrCat(options_.task.ToString(),
                                " cannot continue: ", connected.message()));
    }
    return connected;
  }

  absl::Status Declare(const proto::Declaration& declaration,
                       absl::Time deadline) override {
    return client_.StartDeclare(declaration)->Await(deadline).status();
  }

  absl::Status AwaitVariables(absl::Time deadline,
                              const FirstValues& first_values) override {
    std::optional<uint64_t> given_through;
    if (first_values) given_through = 0;
    for (;;) {
      const auto request = client_.StartAwaitVariables(given_through);
      HOLDFAST_ASSIGN_OR_RETURN(const auto found, request->Await(deadline));
      if (found == client::Client::Variables::kReady) return absl::OkStatus();
      HOLDFAST_ASSIGN_OR_RETURN(const auto giving,
                                request->StartGive(first_values));
      HOLDFAST_RETURN_IF_ERROR(giving->Await(deadline));
      given_through = giving->generation();
    }
  }

  bool rolled_back() const override { return client_.rolled_back(); }

  const proto::Declaration& declaration() const override {
    return client_.declaration();
  }

  std::unique_ptr<Push> StartPush(GlobalStep step) override {
    return client_.StartPush(step);
  }

  std::unique_ptr<Push> StartPush(const Ticket& ticket,
                                  const Parameters& at) override {
    return client_.StartPush(ticket, at);
  }

  std::unique_ptr<TicketRequest> StartTakeTicket() override {
    return client_.StartTakeTicket();
  }

  std::unique_ptr<Pull> StartPull(GlobalStep min_version,
                                  Parameters* into) override {
    return client_.StartPull(min_version, into);
  }

  absl::StatusOr<std::unique_ptr<Pin>> PinVersion(
      absl::Duration hold, absl::Time deadline) override {
    return client_.StartPin(hold)->Await(deadline);
  }

  absl::Status AwaitDone(absl::Time deadline) override {
    HOLDFAST_ASSIGN_OR_RETURN(const auto ready, client_.ReadyToWork());
    const Context& context = *client_.context();
    CallGroup calls(client_.context(), ready->sender);
    return calls.Await(
        deadline, [&] { return context.state().phase() == proto::DONE; },
        [&] {
          return absl::StrCat("the end of the job by ", context.ps_names[0]);
        });
  }

  absl::Status ReportEvaluation(const proto::EvaluationResult& result,
                                absl::Time deadline) override {
    return client_.StartReportEvaluation(result)->Await(deadline).status();
  }

  absl::StatusOr<std::optional<proto::CheckpointName>> NextEvaluation(
      absl::Time deadline) override {
    const absl::StatusOr<proto::NextEvaluationResponse> next =
        client_.StartNextEvaluation()->Await(deadline);
    if (absl::IsFailedPrecondition(next.status()) &&
        state().phase() == proto::DONE) {
      return std::nullopt;  // the ps have ended, too
    }
    if (!next.ok()) return next.status();
    if (next->has_checkpoint()) return next->checkpoint();
    if (next->state().phase() == proto::DONE) return std::nullopt;
    return absl::AbortedError(next->state().reason());
  }

  absl::Status ReportEvaluation(const proto::EvaluationResult& result,
                                const proto::CheckpointName& checkpoint,
                                absl::Time deadline) override {
    return client_.StartReportEvaluation(result, checkpoint)
        ->Await(deadline)
        .status();
  }

  absl::StatusOr<proto::GetStatusResponse> GetStatus(
      absl::Time deadline) override {
    return client_.StartGetStatus(/*with_job=*/false)->Await(deadline);
  }

  absl::StatusOr<std::optional<proto::DeclaredJob>> GetDeclaredJob(
      absl::Time deadline) override {
    HOLDFAST_ASSIGN_OR_RETURN(
        auto status,
        client_.StartGetStatus(/*with_job=*/true)->Await(deadline));
    if (!status.has_job()) return std::nullopt;
    return std::move(*status.mutable_job());
  }

  absl::StatusOr<proto::GetEventsResponse> GetEvents(
      uint64_t after, absl::Time deadline) override {
    return client_.StartGetEvents(after)->Await(deadline);
  }

  absl::StatusOr<proto::GetHistoryResponse> GetHistory(
      const proto::GetHistoryRequest& request, absl::Time deadline) override {
    return client_.StartGetHistory(request)->Await(deadline);
  }

  absl::StatusOr<proto::TraceResponse> Trace(const proto::TraceRequest& request,
                                             absl::Time deadline) override {
    return client_.StartTrace(request)->Await(deadline);
  }

  absl::StatusOr<GlobalStep> SaveCheckpoint(absl::Time deadline) override {
    proto::CheckpointRequest request;
    request.set_wait_ms(
        absl::ToInt64Milliseconds(client_.context()->timing.park));
    for (;;) {
      // The first answer says which step will be saved.
      HOLDFAST_ASSIGN_OR_RETURN(
          const auto first,
          client_.StartCheckpoint(request, "a checkpoint", nullptr)
              ->Await(deadline));
      const GlobalStep step(first.step());
      const std::string what =
          absl::StrCat("the checkpoint of step ", step.value());
      if (first.durable_step() >= first.step()) return step;

      proto::CheckpointRequest again = request;
      again.set_step(first.step());
      const auto look = [&](const proto::CheckpointResponse& response) {
        const bool over = response.generation() != first.generation() ||
                          response.durable_step() >= first.step() ||
                          !response.error().empty();
        return over ? Next::kDone : Next::kAgain;
      };
      HOLDFAST_ASSIGN_OR_RETURN(
          const auto last,
          client_.StartCheckpoint(again, what, look)->Await(deadline));
      // The job has rolled back to an earlier step, so the requested checkpoint
      // may never be taken.
      if (last.generation() != first.generation()) continue;
      if (last.durable_step() >= first.step()) return step;
      return absl::UnavailableError(
          absl::StrCat(what, " could not be written: ", last.error()));
    }
  }

  absl::StatusOr<proto::StopResponse> StopJob(proto::StopRequest request,
                                              absl::Time deadline) override {
    if (request.wait_ms() == 0) {
      request.set_wait_ms(
          absl::ToInt64Milliseconds(client_.context()->timing.park));
    }
    *request.mutable_sender() = Sender();
    return client_.StartStopJob(request)->Await(deadline);
  }

  absl::Status Finish(absl::Time deadline) override {
    while (state().phase() != proto::DONE) {
      proto::StopRequest request;
      request.set_finish(true);
      *request.mutable_sender() = Sender();
      const absl::Status status =
          client_.StartStopJob(request)->Await(deadline).status();
      // The ps of a job that is done may have ended.
      if (status.ok() || state().phase() == proto::DONE) break;
      // A restarted coordinator does not know this task until the session has
      // registered again.
      const absl::Time again = SteadyNow() + kRegistersAgain;
      if (!absl::IsNotFound(status) || session_ == nullptr ||
          !session_->status().ok() || again >= deadline) {
        return status;
      }
      absl::SleepFor(kRegistersAgain);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<proto::SetLearningRateResponse> SetLearningRate(
      const proto::SetLearningRateRequest& request,
      absl::Time deadline) override {
    return client_.StartSetLearningRate(request)->Await(deadline);
  }

  absl::Status Leave(const std::string& error, absl::Time deadline) override {
    if (session_ == nullptr) return absl::OkStatus();
    return session_->Close(error, deadline);
  }

  absl::Status LeaveEarly(bool program_ended, absl::Time deadline) override {
    if (session_ == nullptr) return absl::OkStatus();
    return session_->CloseEarly(program_ended, deadline);
  }

  void Cancel() override {
    client_.context()->End(absl::CancelledError(
        absl::StrCat(options_.task.ToString(), " has given up")));
  }

  proto::JobState state() const override {
    absl::MutexLock lock(&client_.context()->mutex);
    return client_.context()->state();
  }

  GlobalStep durable_step() const override {
    absl::MutexLock lock(&client_.context()->mutex);
    return GlobalStep(client_.context()->durable_step());
  }

 private:
  // The caller as the sender of a call for which it need not be in the current
  // generation.
  proto::Sender Sender() const {
    if (session_ != nullptr) return session_->sender();
    proto::Sender sender;
    sender.mutable_task()->set_job(kClientJob);
    return sender;
  }

  Session::Options SessionOptions(absl::Time deadline) {
    Session::Options options;
    options.task = options_.task;
    options.queue = wire_.queue();
    options.coordinator = PsAddresses(options_.cluster).front();
    options.credentials = options_.credentials;
    options.job_digest = options_.job_digest;
    options.data_digest = options_.data_digest;
    options.declaration = options_.declaration;
    options.num_ps = options_.cluster.num_ps();
    options.num_workers = options_.cluster.num_replicas();
    options.deadline = deadline;
    options.attempt_timeout = client_.context()->timing.attempt;
    options.patience = options_.recovery_timeout;
    // Once joined, waiting calls report that the coordinator is silent.
    options.on_waiting = [this](const std::string& what) {
      if (!joined_ && options_.on_waiting) options_.on_waiting(what);
    };
    options.report = options_.report;
    options.tracer = options_.cluster_tracer;
    options.give_up = options_.give_up;
    options.on_change = [this](const SessionNews& news) { client_.Hear(news); };
    return options;
  }

  void LeaveShortly(const std::string& error) {
    if (session_ == nullptr) return;
    const bool ends_job = options_.task.job != kEvaluatorJob;
    session_
        ->Close(ends_job ? error : "",
                SteadyNow() + client_.context()->timing.last_words)
        .IgnoreError();
  }

  const Options options_;
  // Each of the following members uses those before it.
  Wire wire_;
  Client client_;
  // Whether the session is open.
  std::atomic<bool> joined_{false};
  // Null for a client that only reads.
  std::unique_ptr<Session> session_;
};

absl::Status CheckOptions(const Cluster::Options& options) {
  if (options.part_bytes < static_cast<int64_t>(sizeof(float)) ||
      options.part_bytes > kMaxPartBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("part_bytes is ", options.part_bytes, ", must be from ",
                     sizeof(float), " to ", kMaxPartBytes));
  }
  if (options.task.job == kClientJob) return absl::OkStatus();
  if (options.task.job == kPsJob) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.task.ToString(), " is not a client of its cluster"));
  }
  return options.cluster.CheckTask(options.task);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Cluster>> Connect(Cluster::Options options,
                                                 const Timing& timing) {
  HOLDFAST_RETURN_IF_ERROR(CheckOptions(options));
  auto cluster = std::make_unique<ClusterImpl>(std::move(options), timing);
  HOLDFAST_RETURN_IF_ERROR(cluster->Open());
  return cluster;
}

}  // namespace holdfast::client

namespace holdfast {

absl::StatusOr<std::unique_ptr<Cluster>> Cluster::Connect(Options options) {
  return client::Connect(std::move(options), client::Timing());
}

}  // namespace holdfast
