#include "client/cluster.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "client/call_group.h"
#include "client/connect.h"
#include "client/context.h"
#include "client/core.h"
#include "client/offer.h"
#include "client/pin.h"
#include "client/pull.h"
#include "client/push.h"
#include "common/clock.h"
#include "common/rpc/session.h"

namespace holdfast::client {
namespace {

// A part must leave room for names and shapes in a message.
constexpr int64_t kMaxPartBytes = kMaxMessageBytes / 2;

// A request that could not begin.
class FailedTicket : public Cluster::TicketRequest {
 public:
  explicit FailedTicket(absl::Status error) : error_(std::move(error)) {}
  absl::StatusOr<std::optional<Ticket>> Await(absl::Time) override {
    return error_;
  }

 private:
  const absl::Status error_;
};

class ClusterImpl : public Cluster {
 public:
  ClusterImpl(Options options, const Timing& timing)
      : options_(std::move(options)) {
    core_.member = options_.task.job != kClientJob;
    core_.context = std::make_shared<Context>(
        timing, options_.on_waiting, options_.task, [this] { LookForNews(); });
    news_calls_ = std::make_unique<CallGroup>(core_.context);
  }

  ~ClusterImpl() override {
    // After Leave, this does nothing; and nobody is there when all was silent.
    if (session_ != nullptr && !absl::IsUnavailable(session_->status())) {
      LeaveShortly(absl::StrCat(options_.task.ToString(),
                                " ended without leaving the cluster"));
    }
    session_.reset();
    std::shared_ptr<Generation> last;
    {
      absl::MutexLock lock(&core_.context->mutex);
      last.swap(core_.generation);
    }
    last.reset();
    news_calls_->Cancel();
    core_.wire.reset();
  }

  absl::Status Open() {
    const absl::Time deadline = SteadyNow() + options_.connect_timeout;
    std::vector<std::string> addresses;
    for (const auto& [index, address] : options_.cluster.jobs().at(kPsJob)) {
      addresses.push_back(address);
    }
    core_.wire = std::make_unique<Wire>(core_.context, addresses,
                                        options_.credentials, options_.tracer);
    if (core_.member) {
      absl::StatusOr<std::unique_ptr<Session>> session =
          Session::Open(SessionOptions(addresses.front(), deadline));
      if (!session.ok()) return session.status();
      session_ = *std::move(session);
      joined_ = true;
    }
    const absl::Status connected = core_.wire->AwaitConnected(
        deadline, options_.fail_fast && !core_.member);
    if (absl::IsInvalidArgument(connected)) {
      // Its own mistake does not end the job for the others.
      LeaveShortly("");
    } else if (!connected.ok()) {
      LeaveShortly(absl::StrCat(options_.task.ToString(),
                                " cannot go on: ", connected.message()));
    }
    return connected;
  }

  absl::Status Declare(const proto::Declaration& declaration,
                       absl::Time deadline) override {
    if (absl::Status status = core_.CheckMember(); !status.ok()) return status;
    proto::DeclareRequest request;
    *request.mutable_declaration() = declaration;
    CallGroup calls(core_.context);
    return Ask<proto::DeclareResponse>(
               &calls, deadline, &Wire::Declare, std::move(request),
               [&] { return ByCoordinator("the answer to Declare"); })
        .status();
  }

  absl::Status AwaitVariables(absl::Time deadline) override {
    if (core_.Ready().ok()) return absl::OkStatus();
    proto::Sender sender;
    const absl::StatusOr<proto::GetPlacementResponse> response =
        AwaitPlacement(&sender, deadline);
    if (!response.ok()) return response.status();
    absl::StatusOr<Layout> layout =
        Layout::Make(*response, core_.wire->num_ps());
    if (!layout.ok()) {
      return absl::Status(
          layout.status().code(),
          absl::StrCat(PsName(), ": ", layout.status().message()));
    }
    auto generation = std::make_shared<Generation>(
        core_.context, core_.wire.get(), sender,
        Placement{*layout, PlanPush(*layout, options_.part_bytes),
                  PlanPull(*layout, options_.part_bytes)});
    absl::MutexLock lock(&core_.context->mutex);
    if (declaration_ == nullptr) {
      declaration_ = std::make_unique<const proto::Declaration>(
          generation->placement.layout.declaration());
    }
    // Of two callers at a time, the first sets it: handles may use it already.
    if (core_.generation == nullptr || !core_.generation->WhyOver().ok()) {
      core_.generation.swap(generation);  // the old one goes without the lock
      core_.context->step_waits_for.clear();
    }
    return absl::OkStatus();
  }

  bool rolled_back() const override {
    absl::MutexLock lock(&core_.context->mutex);
    return core_.generation != nullptr &&
           core_.context->IsRolledBack(core_.generation->sender);
  }

  const proto::Declaration& declaration() const override {
    absl::MutexLock lock(&core_.context->mutex);
    return declaration_ == nullptr ? proto::Declaration::default_instance()
                                   : *declaration_;
  }

  std::unique_ptr<Push> StartPush(GlobalStep step) override {
    return client::StartPush(core_, step);
  }

  std::unique_ptr<Push> StartPush(const Ticket& ticket,
                                  const Parameters& at) override {
    return client::StartPush(core_, ticket, at);
  }

  std::unique_ptr<TicketRequest> StartTakeTicket() override {
    const absl::StatusOr<std::shared_ptr<Generation>> ready =
        core_.ReadyToWork();
    if (!ready.ok()) return std::make_unique<FailedTicket>(ready.status());
    return Tickets::StartTake({*ready, &(*ready)->tickets});
  }

  PushSequence NextSequence() override {
    absl::MutexLock lock(&core_.context->mutex);
    if (core_.generation == nullptr) return PushSequence(0);
    Generation& generation = *core_.generation;
    const PushSequence sequence = generation.sequences.Take(std::nullopt);
    generation.sequences.Release(sequence);
    return sequence;
  }

  std::unique_ptr<Offer> StartContribute(const Contribution& offer) override {
    return client::StartContribute(core_, offer);
  }

  std::unique_ptr<Pull> StartPull(GlobalStep min_version,
                                  Parameters* into) override {
    return client::StartPull(core_, min_version, into);
  }

  absl::StatusOr<std::unique_ptr<Pin>> PinVersion(
      absl::Duration hold, absl::Time deadline) override {
    return client::PinVersion(core_, hold, deadline);
  }

  absl::Status AwaitDone(absl::Time deadline) override {
    const absl::StatusOr<std::shared_ptr<Generation>> ready =
        core_.ReadyToWork();
    if (!ready.ok()) return ready.status();
    const Context& context = *core_.context;
    CallGroup calls(core_.context, (*ready)->sender);
    return calls.Await(
        deadline, [&] { return context.state().phase() == proto::DONE; },
        [&] { return ByCoordinator("the end of the job"); });
  }

  absl::Status ReportEvaluation(const proto::EvaluationResult& result,
                                absl::Time deadline) override {
    const absl::StatusOr<std::shared_ptr<Generation>> ready =
        core_.ReadyToWork();
    if (!ready.ok()) return ready.status();
    proto::ReportEvaluationRequest request;
    *request.mutable_result() = result;
    CallGroup calls(core_.context, (*ready)->sender);
    return Ask<proto::ReportEvaluationResponse>(
               &calls, deadline, &Wire::ReportEvaluation, std::move(request),
               [&] { return ByCoordinator("the answer to ReportEvaluation"); })
        .status();
  }

  absl::StatusOr<proto::GetStatusResponse> GetStatus(
      absl::Time deadline) override {
    CallGroup calls(core_.context);
    return Ask<proto::GetStatusResponse>(
        &calls, deadline, &Wire::GetStatus, proto::GetStatusRequest(),
        [&] { return ByCoordinator("the answer to GetStatus"); },
        [](const auto&) { return Next::kDone; }, /*regardless=*/true);
  }

  absl::StatusOr<GlobalStep> SaveCheckpoint(absl::Time deadline) override {
    proto::CheckpointRequest request;
    request.set_wait_ms(absl::ToInt64Milliseconds(core_.context->timing.park));
    for (;;) {
      // What is asked for is told by the first answer.
      CallGroup calls(core_.context);
      const absl::StatusOr<proto::CheckpointResponse> first =
          Ask<proto::CheckpointResponse>(
              &calls, deadline, &Wire::Checkpoint, request,
              [&] { return ByCoordinator("a checkpoint"); });
      if (!first.ok()) return first.status();
      const GlobalStep step(first->step());
      const std::string what =
          absl::StrCat("the checkpoint of step ", step.value());
      if (first->durable_step() >= first->step()) return step;

      proto::CheckpointRequest again = request;
      again.set_step(first->step());
      const absl::StatusOr<proto::CheckpointResponse> last =
          Ask<proto::CheckpointResponse>(
              &calls, deadline, &Wire::Checkpoint, again,
              [&] { return ByCoordinator(what); },
              [&](const proto::CheckpointResponse& response) {
                const bool over =
                    response.generation() != first->generation() ||
                    response.durable_step() >= first->step() ||
                    !response.error().empty();
                return over ? Next::kDone : Next::kAgain;
              });
      if (!last.ok()) return last.status();
      // What was asked for may never come: the job has gone back behind it.
      if (last->generation() != first->generation()) continue;
      if (last->durable_step() >= first->step()) return step;
      return absl::UnavailableError(absl::StrCat(
          PsName(), ": ", what, " could not be written: ", last->error()));
    }
  }

  absl::Status Leave(const std::string& error, absl::Time deadline) override {
    if (session_ == nullptr) return absl::OkStatus();
    return session_->Close(error, deadline);
  }

  proto::JobState state() const override {
    absl::MutexLock lock(&core_.context->mutex);
    return core_.context->state();
  }

  GlobalStep durable_step() const override {
    absl::MutexLock lock(&core_.context->mutex);
    return GlobalStep(core_.context->durable_step());
  }

 private:
  Session::Options SessionOptions(const std::string& coordinator,
                                  absl::Time deadline) const {
    Session::Options options;
    options.task = options_.task;
    options.queue = &core_.context->queue;
    options.coordinator = coordinator;
    options.credentials = options_.credentials;
    options.job_digest = options_.job_digest;
    options.data_digest = options_.data_digest;
    options.declaration = options_.declaration;
    options.num_ps = options_.cluster.num_ps();
    options.num_workers = options_.cluster.num_replicas();
    options.deadline = deadline;
    options.attempt_timeout = core_.context->timing.attempt;
    options.patience = options_.recovery_timeout;
    // Later the calls that wait tell of a coordinator that is silent.
    options.on_waiting = [this](const std::string& what) {
      if (!joined_ && options_.on_waiting) options_.on_waiting(what);
    };
    options.input_wait = options_.input_wait;
    options.on_change = [context = core_.context](const Session::News& news) {
      context->Hear(news);
    };
    return options;
  }

  void LeaveShortly(const std::string& error) {
    if (session_ == nullptr) return;
    session_->Close(error, SteadyNow() + core_.context->timing.last_words)
        .IgnoreError();
  }

  const std::string& PsName() const { return core_.wire->PsName(0); }
  std::string ByCoordinator(absl::string_view what) const {
    return absl::StrCat(what, " by ", PsName());
  }

  // Asks the coordinator, until `look`, which is called with the lock held,
  // says kDone to an answer, and waits for that. `what`: as of
  // CallGroup::Await.
  template <typename Response, typename Request>
  absl::StatusOr<Response> Ask(
      CallGroup* calls, absl::Time deadline,
      void (Wire::*method)(const CallGroup&, Request, Answer<Response>),
      Request request, absl::FunctionRef<std::string()> what,
      absl::FunctionRef<Next(const Response&)> look =
          [](const Response&) { return Next::kDone; },
      bool regardless = false) {
    std::optional<absl::StatusOr<Response>> answer;
    absl::Mutex& mutex = core_.context->mutex;
    (core_.wire.get()->*method)(
        *calls, std::move(request), [&](absl::StatusOr<Response> response) {
          absl::MutexLock lock(&mutex);
          if (response.ok() && look(*response) == Next::kAgain) {
            return Next::kAgain;
          }
          answer = std::move(response);
          return Next::kDone;
        });
    const auto done = [&] { return answer.has_value(); };
    const absl::Status status =
        regardless ? calls->AwaitRegardless(deadline, done, what)
                   : calls->Await(deadline, done, what);
    if (!status.ok()) {
      calls->Cancel();
      return status;
    }
    return *std::move(answer);
  }

  // The coordinator's answer that the variables are there, in the newest
  // generation; and who works in it.
  absl::StatusOr<proto::GetPlacementResponse> AwaitPlacement(
      proto::Sender* sender, absl::Time deadline) {
    CallGroup calls(core_.context);
    proto::GetPlacementRequest request;
    request.set_wait_ms(absl::ToInt64Milliseconds(core_.context->timing.park));
    std::string waiting_for;
    absl::StatusOr<proto::GetPlacementResponse> response =
        Ask<proto::GetPlacementResponse>(
            &calls, deadline, &Wire::GetPlacement, std::move(request),
            [&] {
              std::string text = absl::StrCat("the variables, of ", PsName());
              if (!waiting_for.empty()) {
                absl::StrAppend(&text, "; it waits for ", waiting_for);
              }
              return text;
            },
            [&](const proto::GetPlacementResponse& response) {
              waiting_for = response.waiting_for();
              *sender = core_.context->sender();
              const bool over =
                  response.ready()
                      ? response.generation() == sender->generation()
                      : response.state().phase() == proto::DONE;
              return over ? Next::kDone : Next::kAgain;
            });
    if (response.ok() && !response->ready()) {
      return absl::FailedPreconditionError(
          absl::StrCat(PsName(), ": the job is done, its variables are gone"));
    }
    return response;
  }

  // For a client without a session, whose call was refused: what has become of
  // the job? The answer is told to the context.
  void LookForNews() {
    if (core_.member) return;
    {
      absl::MutexLock lock(&core_.context->mutex);
      if (std::exchange(looking_, true)) return;
    }
    core_.wire->GetPlacement(
        *news_calls_, proto::GetPlacementRequest(),
        [this](const absl::StatusOr<proto::GetPlacementResponse>&) {
          absl::MutexLock lock(&core_.context->mutex);
          looking_ = false;
          return Next::kDone;
        });
  }

  const Options options_;
  Core core_;
  // The session is open.
  std::atomic<bool> joined_{false};
  // Null for a client that only reads.
  std::unique_ptr<Session> session_;
  // Of LookForNews.
  std::unique_ptr<CallGroup> news_calls_;
  bool looking_ ABSL_GUARDED_BY(core_.context->mutex) = false;
  // Null before AwaitVariables, then set once.
  std::unique_ptr<const proto::Declaration> declaration_
      ABSL_GUARDED_BY(core_.context->mutex);
};

absl::Status CheckOptions(const Cluster::Options& options) {
  if (options.part_bytes < static_cast<int64_t>(sizeof(float)) ||
      options.part_bytes > kMaxPartBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("part_bytes is ", options.part_bytes, ", not in ",
                     sizeof(float), " to ", kMaxPartBytes));
  }
  if (options.task.job == kClientJob) return absl::OkStatus();
  if (options.task.job == kPsJob) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.task.ToString(), " is no client of its cluster"));
  }
  return options.cluster.CheckTask(options.task);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Cluster>> Connect(Cluster::Options options,
                                                 const Timing& timing) {
  if (absl::Status status = CheckOptions(options); !status.ok()) return status;
  auto cluster = std::make_unique<ClusterImpl>(std::move(options), timing);
  if (absl::Status status = cluster->Open(); !status.ok()) return status;
  return cluster;
}

}  // namespace holdfast::client

namespace holdfast {

absl::StatusOr<std::unique_ptr<Cluster>> Cluster::Connect(Options options) {
  return client::Connect(std::move(options), client::Timing());
}

}  // namespace holdfast
