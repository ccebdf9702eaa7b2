#include "client/cluster.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "client/call_group.h"
#include "client/connect.h"
#include "client/context.h"
#include "client/core.h"
#include "client/offer.h"
#include "client/pin.h"
#include "client/pull.h"
#include "client/push.h"
#include "common/rpc/session.h"

namespace holdfast::client {
namespace {

// A part must leave room for names and shapes in a message.
constexpr int64_t kMaxPartBytes = kMaxMessageBytes / 2;

class ClusterImpl : public Cluster {
 public:
  ClusterImpl(Options options, const Timing& timing)
      : options_(std::move(options)) {
    core_.context = std::make_shared<Context>(timing, options_.on_waiting);
    core_.background = std::make_unique<CallGroup>(core_.context);
    core_.member = options_.task.job != kClientJob;
    reader_.mutable_task()->set_job(options_.task.job);
    reader_.mutable_task()->set_index(options_.task.index);
  }

  ~ClusterImpl() override {
    // After Leave, this does nothing; and nobody is there when all was silent.
    if (session_ != nullptr && !absl::IsUnavailable(session_->status())) {
      LeaveShortly(absl::StrCat(options_.task.ToString(),
                                " ended without leaving the cluster"));
    }
    core_.background.reset();
    core_.tickets.reset();
    core_.wire.reset();
  }

  absl::Status Open() {
    const absl::Time deadline = absl::Now() + options_.connect_timeout;
    std::vector<std::string> addresses;
    for (const auto& [index, address] : options_.cluster.jobs().at(kPsJob)) {
      addresses.push_back(address);
    }
    if (core_.member) {
      absl::StatusOr<std::unique_ptr<Session>> session =
          Session::Open(SessionOptions(addresses.front(), deadline));
      if (!session.ok()) return session.status();
      session_ = *std::move(session);
    }
    core_.wire = std::make_unique<Wire>(core_.context, addresses,
                                        [this] { return sender(); });
    core_.tickets = std::make_unique<Tickets>(
        core_.context, core_.wire.get(), &core_.sequences, core_.CheckMember());
    const absl::Status connected = core_.wire->AwaitConnected(deadline);
    if (!connected.ok()) {
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
    return Ask<proto::DeclareResponse>("the answer to Declare", deadline,
                                       &Wire::Declare, std::move(request))
        .status();
  }

  absl::Status AwaitVariables(absl::Time deadline) override {
    if (core_.Ready().ok()) return absl::OkStatus();
    absl::StatusOr<proto::GetPlacementResponse> response =
        AwaitPlacement(deadline);
    if (!response.ok()) return response.status();
    absl::StatusOr<Layout> layout =
        Layout::Make(*response, core_.wire->num_ps());
    if (!layout.ok()) {
      return absl::Status(
          layout.status().code(),
          absl::StrCat(core_.wire->PsName(0), ": ", layout.status().message()));
    }
    auto placement = std::make_unique<Placement>(
        Placement{*layout, PlanPush(*layout, options_.part_bytes),
                  PlanPull(*layout, options_.part_bytes)});
    absl::MutexLock lock(&core_.context->mutex);
    reader_.set_generation(response->generation());
    // Of two callers at a time, the first sets it: handles may use it already.
    if (core_.placement == nullptr) core_.placement = std::move(placement);
    return absl::OkStatus();
  }

  const proto::Declaration& declaration() const override {
    static const proto::Declaration* const kNone = new proto::Declaration;
    const absl::StatusOr<const Placement*> placement = core_.Ready();
    return placement.ok() ? (*placement)->layout.declaration() : *kNone;
  }

  std::unique_ptr<Push> StartPush(GlobalStep step) override {
    return client::StartPush(&core_, step);
  }

  std::unique_ptr<Push> StartPush(const Ticket& ticket,
                                  const Parameters& at) override {
    return client::StartPush(&core_, ticket, at);
  }

  std::unique_ptr<TicketRequest> StartTakeTicket() override {
    return core_.tickets->StartTake();
  }

  PushSequence NextSequence() override {
    absl::MutexLock lock(&core_.context->mutex);
    const PushSequence sequence = core_.sequences.Take(std::nullopt);
    core_.sequences.Release(sequence);
    return sequence;
  }

  std::unique_ptr<Offer> StartContribute(const Contribution& offer) override {
    return client::StartContribute(&core_, offer);
  }

  std::unique_ptr<Pull> StartPull(GlobalStep min_version,
                                  Parameters* into) override {
    return client::StartPull(&core_, min_version, into);
  }

  absl::StatusOr<std::unique_ptr<Pin>> PinVersion(
      absl::Duration hold, absl::Time deadline) override {
    return client::PinVersion(&core_, hold, deadline);
  }

  absl::Status ReportEvaluation(const proto::EvaluationResult& result,
                                absl::Time deadline) override {
    if (absl::Status status = core_.CheckMember(); !status.ok()) return status;
    proto::ReportEvaluationRequest request;
    *request.mutable_result() = result;
    return Ask<proto::ReportEvaluationResponse>(
               "the answer to ReportEvaluation", deadline,
               &Wire::ReportEvaluation, std::move(request))
        .status();
  }

  absl::StatusOr<proto::GetStatusResponse> GetStatus(
      absl::Time deadline) override {
    return Ask<proto::GetStatusResponse>("the answer to GetStatus", deadline,
                                         &Wire::GetStatus,
                                         proto::GetStatusRequest(),
                                         /*regardless=*/true);
  }

  bool rolled_back() const override { return false; }
  GlobalStep durable_step() const override { return GlobalStep(0); }

  absl::Status AwaitDone(absl::Time deadline) override {
    if (absl::Status status = core_.CheckMember(); !status.ok()) return status;
    CallGroup calls(core_.context);
    bool done = false;
    while (!done) {
      done = state().phase() == proto::DONE;
      const absl::Time next =
          std::min(deadline, absl::Now() + absl::Milliseconds(50));
      const absl::Status status = calls.Await(
          next, [&] { return done; }, [] { return "the end of the job"; });
      if (!status.ok() && absl::Now() >= deadline) return status;
      if (absl::IsAborted(status)) return status;
    }
    return absl::OkStatus();
  }

  absl::Status Leave(const std::string& error, absl::Time deadline) override {
    if (session_ == nullptr) return absl::OkStatus();
    return session_->Close(error, deadline);
  }

  proto::JobState state() const override {
    proto::JobState state = core_.context->state();
    if (session_ != nullptr) {
      proto::JobState told = session_->state();
      if (told.phase() > state.phase()) state = std::move(told);
    }
    return state;
  }

 private:
  Session::Options SessionOptions(const std::string& coordinator,
                                  absl::Time deadline) const {
    Session::Options options;
    options.task = options_.task;
    options.coordinator = coordinator;
    options.job_digest = options_.job_digest;
    options.data_digest = options_.data_digest;
    options.num_ps = options_.cluster.num_ps();
    options.num_workers = options_.cluster.num_replicas();
    options.deadline = deadline;
    options.attempt_timeout = core_.context->timing.attempt;
    options.on_waiting = options_.on_waiting;
    options.on_change = [context = core_.context](const proto::JobState& state,
                                                  const absl::Status& status) {
      // First: a silent coordinator is not a job that has failed.
      if (!status.ok()) context->End(status);
      context->Note(state);
    };
    return options;
  }

  void LeaveShortly(const std::string& error) {
    if (session_ == nullptr) return;
    session_->Close(error, absl::Now() + core_.context->timing.last_words)
        .IgnoreError();
  }

  proto::Sender sender() const {
    if (session_ != nullptr) return session_->sender();
    absl::MutexLock lock(&core_.context->mutex);
    return reader_;
  }

  // Asks the coordinator once, and waits.
  template <typename Response, typename Request>
  absl::StatusOr<Response> Ask(const std::string& what, absl::Time deadline,
                               void (Wire::*method)(const CallGroup&, Request,
                                                    Answer<Response>),
                               Request request, bool regardless = false) {
    std::optional<absl::StatusOr<Response>> answer;
    CallGroup calls(core_.context);
    absl::Mutex& mutex = core_.context->mutex;
    (core_.wire.get()->*method)(calls, std::move(request),
                                [&](absl::StatusOr<Response> response) {
                                  absl::MutexLock lock(&mutex);
                                  answer = std::move(response);
                                  return Next::kDone;
                                });
    const auto done = [&] { return answer.has_value(); };
    const auto describe = [&] {
      return absl::StrCat(what, " by ", core_.wire->PsName(0));
    };
    const absl::Status status =
        regardless ? calls.AwaitRegardless(deadline, done, describe)
                   : calls.Await(deadline, done, describe);
    calls.Cancel();
    if (!status.ok()) return status;
    return *std::move(answer);
  }

  // The coordinator's answer that the variables are there.
  absl::StatusOr<proto::GetPlacementResponse> AwaitPlacement(
      absl::Time deadline) {
    std::optional<absl::StatusOr<proto::GetPlacementResponse>> answer;
    std::string waiting_for;
    CallGroup calls(core_.context);
    absl::Mutex& mutex = core_.context->mutex;
    proto::GetPlacementRequest request;
    request.set_wait_ms(absl::ToInt64Milliseconds(core_.context->timing.park));
    core_.wire->GetPlacement(
        calls, std::move(request),
        [&](absl::StatusOr<proto::GetPlacementResponse> response) {
          absl::MutexLock lock(&mutex);
          if (response.ok() && !response->ready()) {
            waiting_for = response->waiting_for();
            if (response->state().phase() != proto::DONE) return Next::kAgain;
            response = absl::FailedPreconditionError(
                absl::StrCat(core_.wire->PsName(0),
                             ": the job is done, its variables are gone"));
          }
          answer = std::move(response);
          return Next::kDone;
        });
    const absl::Status status = calls.Await(
        deadline, [&] { return answer.has_value(); },
        [&] {
          std::string text =
              absl::StrCat("the variables, of ", core_.wire->PsName(0));
          if (!waiting_for.empty()) {
            absl::StrAppend(&text, "; it waits for ", waiting_for);
          }
          return text;
        });
    calls.Cancel();
    if (!status.ok()) return status;
    return *std::move(answer);
  }

  const Options options_;
  Core core_;
  // Null for a reader.
  std::unique_ptr<Session> session_;
  // The sender in a reader's requests.
  proto::Sender reader_ ABSL_GUARDED_BY(core_.context->mutex);
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
