// SPDX-License-Identifier: Apache-2.0
#include "client/client.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "client/layout.h"
#include "client/plan.h"
#include "client/pull.h"
#include "client/push.h"
#include "client/tickets.h"
#include "common/base/status_macros.h"
#include "common/job/job_phase.h"

namespace holdfast::client {

Client::Client(Options options, Transport* transport)
    : member_(options.task.job != kClientJob && !options.only_reads),
      trains_(member_ && options.task.job != kEvaluatorJob),
      part_bytes_(options.part_bytes),
      min_lent_bytes_(options.min_lent_bytes),
      context_(std::make_shared<Context>(
          Context::Options{
              options.timing, options.task, std::move(options.ps_names),
              std::move(options.on_waiting), [this] { LookForNews(); },
              [this](const absl::Status& why) { OnRefused(why); }},
          transport)),
      news_calls_(context_),
      linking_(context_) {}

Client::~Client() {
  news_calls_.Cancel();
  std::shared_ptr<GenerationState> last;  // destroyed without the lock
  absl::MutexLock lock(&context_->mutex);
  last.swap(generation_);
}

absl::StatusOr<std::shared_ptr<GenerationState>> Client::Ready() const {
  absl::MutexLock lock(&context_->mutex);
  if (generation_ == nullptr) {
    return absl::FailedPreconditionError("AwaitVariables was not called");
  }
  HOLDFAST_RETURN_IF_ERROR(generation_->WhyOver());
  return generation_;
}

absl::StatusOr<std::shared_ptr<GenerationState>> Client::ReadyToWork() const {
  HOLDFAST_RETURN_IF_ERROR(CheckMember());
  return Ready();
}

absl::Status Client::CheckMember() const {
  if (member_) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "this client only reads: it is not a worker or chief of the cluster");
}

std::function<std::string()> Client::ByCoordinator(
    const std::string& what) const {
  return [what, name = PsName()] { return absl::StrCat(what, " from ", name); };
}

std::unique_ptr<Question<proto::DeclareResponse>> Client::StartDeclare(
    const proto::Declaration& declaration) {
  using Asked = Question<proto::DeclareResponse>;
  if (absl::Status status = CheckMember(); !status.ok()) {
    return std::make_unique<Asked>(std::move(status));
  }
  proto::DeclareRequest request;
  *request.mutable_declaration() = declaration;
  return std::make_unique<Asked>(
      context_, rpc::kDeclare, std::move(request),
      Asked::Options{nullptr, ByCoordinator("the answer to Declare"), nullptr,
                     /*regardless=*/false, /*ends_with_job=*/true});
}

// Asks for the placement until the variables exist, in the newest generation.
class Client::VariablesQuestion : public VariablesRequest {
 public:
  VariablesQuestion(Client* client, std::optional<uint64_t> given_through)
      : client_(*client),
        context_(*client->context_),
        given_through_(given_through) {
    // No need to ask if the variables are already known.
    if (client_.Ready().ok()) {
      found_ = Variables::kReady;
      return;
    }
    proto::GetPlacementRequest request;
    if (given_through_.has_value()) {
      if (absl::Status status = client_.CheckMember(); !status.ok()) {
        found_ = status;
        return;
      }
      request.set_values_given_through(*given_through_);
    }
    request.set_wait_ms(absl::ToInt64Milliseconds(context_.timing.park));
    question_ = std::make_unique<Question<proto::GetPlacementResponse>>(
        client_.context_, rpc::kGetPlacement, std::move(request),
        Question<proto::GetPlacementResponse>::Options{
            nullptr, [this] { return Missing(); },
            [this](const proto::GetPlacementResponse& response) {
              return Look(response);
            },
            /*regardless=*/false, /*ends_with_job=*/true});
  }

  bool done() const override { return found_.has_value() || question_->done(); }

  absl::StatusOr<Variables> Await(absl::Time deadline) override {
    if (found_.has_value()) return *found_;
    const absl::StatusOr<proto::GetPlacementResponse> placement =
        question_->Await(deadline);
    if (!placement.ok()) {
      found_ = placement.status();
    } else if (placement->ready()) {
      client_.linking_.LinkAll(deadline);
      const absl::Status entered = client_.Enter(sender_, *placement);
      found_ =
          entered.ok() ? absl::StatusOr<Variables>(Variables::kReady) : entered;
    } else if (placement->state().phase() == proto::DONE) {
      found_ = absl::FailedPreconditionError(absl::StrCat(
          client_.PsName(), ": the job is done, its variables are gone"));
    } else {
      declaration_ = placement->declaration();
      found_ = Variables::kWanted;
    }
    return *found_;
  }

  absl::StatusOr<std::unique_ptr<Giving>> StartGive(
      const FirstValues& values) override {
    Giving::Values given;
    for (int i = 0; i < declaration_.variables_size(); ++i) {
      const proto::Variable& variable = declaration_.variables(i);
      if (!variable.initializer().has_given()) continue;
      HOLDFAST_ASSIGN_OR_RETURN(const auto found,
                                FirstValuesOf(values, declaration_, i));
      given[variable.name()] = found;
    }
    return std::make_unique<Giving>(client_.context_, sender_,
                                    std::move(given));
  }

 private:
  std::string Missing() const {
    std::string text = absl::StrCat("the variables of ", client_.PsName());
    if (!waiting_for_.empty()) {
      absl::StrAppend(&text, "; it waits for ", waiting_for_);
    }
    return text;
  }

  Next Look(const proto::GetPlacementResponse& response)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(context_.mutex) {
    waiting_for_ = response.waiting_for();
    sender_ = context_.sender();
    const bool is_current = response.generation() == sender_.generation();
    const bool is_wanted = response.values_wanted() &&
                           given_through_.has_value() &&
                           *given_through_ < response.generation();
    const bool over = response.ready() || is_wanted
                          ? is_current
                          : response.state().phase() == proto::DONE;
    return over ? Next::kDone : Next::kAgain;
  }

  Client& client_;
  const Context& context_;
  const std::optional<uint64_t> given_through_;
  // Guarded by the context's mutex until the question is done.
  std::string waiting_for_;
  proto::Sender sender_;
  std::optional<absl::StatusOr<Variables>> found_;
  // Set if first values are wanted.
  proto::Declaration declaration_;
  // Destroyed first.
  std::unique_ptr<Question<proto::GetPlacementResponse>> question_;
};

std::unique_ptr<Client::VariablesRequest> Client::StartAwaitVariables(
    std::optional<uint64_t> given_through) {
  return std::make_unique<VariablesQuestion>(this, given_through);
}

absl::Status Client::Enter(const proto::Sender& sender,
                           const proto::GetPlacementResponse& placement) {
  absl::StatusOr<Layout> layout = Layout::Make(placement, context_->num_ps());
  if (!layout.ok()) {
    return absl::Status(
        layout.status().code(),
        absl::StrCat(PsName(), ": ", layout.status().message()));
  }
  const std::vector<bool> neighbors = context_->transport.linked();
  auto generation = std::make_shared<GenerationState>(
      context_, sender,
      Placement{
          *layout, PlanPush(*layout, part_bytes_, neighbors, min_lent_bytes_),
          PlanPull(*layout, part_bytes_, neighbors, min_lent_bytes_),
          PlanPush(*layout, part_bytes_), PlanPull(*layout, part_bytes_)});
  absl::MutexLock lock(&context_->mutex);
  if (declaration_ == nullptr) {
    declaration_ = std::make_unique<const proto::Declaration>(
        generation->placement.layout.declaration());
  }
  // If two threads call Enter, the state of the first one is kept, because
  // handles may already use it.
  if (generation_ == nullptr || !generation_->WhyOver().ok()) {
    generation_.swap(generation);  // destroys the old one without the lock
    context_->step_waits_for.clear();
  }
  return absl::OkStatus();
}

bool Client::rolled_back() const {
  absl::MutexLock lock(&context_->mutex);
  return generation_ != nullptr && context_->IsRolledBack(*generation_->sender);
}

const proto::Declaration& Client::declaration() const {
  absl::MutexLock lock(&context_->mutex);
  return declaration_ == nullptr ? proto::Declaration::default_instance()
                                 : *declaration_;
}

std::unique_ptr<Cluster::Push> Client::StartPush(GlobalStep step) {
  return client::StartPush(ReadyToWork(), step);
}

std::unique_ptr<Cluster::Push> Client::StartPush(const Ticket& ticket,
                                                 const Parameters& at) {
  return client::StartPush(ReadyToWork(), ticket, at);
}

std::unique_ptr<Cluster::TicketRequest> Client::StartTakeTicket() {
  const absl::StatusOr<std::shared_ptr<GenerationState>> ready = ReadyToWork();
  if (!ready.ok()) return Tickets::StartTake(ready.status());
  return Tickets::StartTake(
      std::shared_ptr<Tickets>(*ready, &(*ready)->tickets));
}

std::unique_ptr<Cluster::Pull> Client::StartPull(GlobalStep min_version,
                                                 Parameters* into) {
  return client::StartPull(Ready(), min_version, into);
}

std::unique_ptr<PinRequest> Client::StartPin(absl::Duration hold) {
  return client::StartPin(Ready(), hold);
}

std::unique_ptr<Question<proto::ReportEvaluationResponse>>
Client::StartReportEvaluation(const proto::EvaluationResult& result) {
  proto::ReportEvaluationRequest request;
  *request.mutable_result() = result;
  const absl::StatusOr<std::shared_ptr<GenerationState>> ready = ReadyToWork();
  using Asked = Question<proto::ReportEvaluationResponse>;
  if (!ready.ok()) return std::make_unique<Asked>(ready.status());
  return std::make_unique<Asked>(
      context_, rpc::kReportEvaluation, std::move(request),
      Asked::Options{(*ready)->sender,
                     ByCoordinator("the answer to ReportEvaluation")});
}

std::unique_ptr<Question<proto::NextEvaluationResponse>>
Client::StartNextEvaluation() {
  using Asked = Question<proto::NextEvaluationResponse>;
  if (absl::Status status = CheckMember(); !status.ok()) {
    return std::make_unique<Asked>(std::move(status));
  }
  proto::NextEvaluationRequest request;
  request.set_wait_ms(absl::ToInt64Milliseconds(context_->timing.park));
  return std::make_unique<Asked>(
      context_, rpc::kNextEvaluation, std::move(request),
      Asked::Options{nullptr, ByCoordinator("a checkpoint to evaluate"),
                     [](const proto::NextEvaluationResponse& response) {
                       return response.has_checkpoint() ||
                                      IsEnd(response.state().phase())
                                  ? Next::kDone
                                  : Next::kAgain;
                     },
                     /*regardless=*/false, /*ends_with_job=*/true});
}

std::unique_ptr<Question<proto::ReportEvaluationResponse>>
Client::StartReportEvaluation(const proto::EvaluationResult& result,
                              const proto::CheckpointName& checkpoint) {
  using Asked = Question<proto::ReportEvaluationResponse>;
  if (absl::Status status = CheckMember(); !status.ok()) {
    return std::make_unique<Asked>(std::move(status));
  }
  proto::ReportEvaluationRequest request;
  *request.mutable_result() = result;
  *request.mutable_checkpoint() = checkpoint;
  return std::make_unique<Asked>(
      context_, rpc::kReportEvaluation, std::move(request),
      Asked::Options{nullptr, ByCoordinator("the answer to ReportEvaluation"),
                     nullptr, /*regardless=*/false, /*ends_with_job=*/true});
}

std::unique_ptr<Question<proto::GetStatusResponse>> Client::StartGetStatus(
    bool with_job) {
  using Asked = Question<proto::GetStatusResponse>;
  proto::GetStatusRequest request;
  request.set_with_job(with_job);
  return std::make_unique<Asked>(
      context_, rpc::kGetStatus, std::move(request),
      Asked::Options{nullptr, ByCoordinator("the answer to GetStatus"), nullptr,
                     /*regardless=*/true});
}

std::unique_ptr<Question<proto::GetEventsResponse>> Client::StartGetEvents(
    uint64_t after) {
  proto::GetEventsRequest request;
  request.set_after(after);
  using Asked = Question<proto::GetEventsResponse>;
  return std::make_unique<Asked>(
      context_, rpc::kGetEvents, std::move(request),
      Asked::Options{nullptr, ByCoordinator("the answer to GetEvents"), nullptr,
                     /*regardless=*/true});
}

std::unique_ptr<Question<proto::GetHistoryResponse>> Client::StartGetHistory(
    const proto::GetHistoryRequest& request) {
  using Asked = Question<proto::GetHistoryResponse>;
  return std::make_unique<Asked>(
      context_, rpc::kGetHistory, request,
      Asked::Options{nullptr, ByCoordinator("the answer to GetHistory"),
                     nullptr, /*regardless=*/true});
}

std::unique_ptr<Question<proto::TraceResponse>> Client::StartTrace(
    const proto::TraceRequest& request) {
  using Asked = Question<proto::TraceResponse>;
  return std::make_unique<Asked>(
      context_, rpc::kTrace, request,
      Asked::Options{nullptr, ByCoordinator("the answer to Trace"), nullptr,
                     /*regardless=*/true});
}

std::unique_ptr<Question<proto::CheckpointResponse>> Client::StartCheckpoint(
    proto::CheckpointRequest request, const std::string& what,
    std::function<Next(const proto::CheckpointResponse&)> look) {
  using Asked = Question<proto::CheckpointResponse>;
  return std::make_unique<Asked>(
      context_, rpc::kCheckpoint, std::move(request),
      Asked::Options{nullptr, ByCoordinator(what), std::move(look)});
}

std::unique_ptr<Question<proto::StopResponse>> Client::StartStopJob(
    const proto::StopRequest& request) {
  using Asked = Question<proto::StopResponse>;
  return std::make_unique<Asked>(
      context_, rpc::kStop, request,
      Asked::Options{nullptr, ByCoordinator("the answer to Stop"), nullptr,
                     /*regardless=*/true});
}

std::unique_ptr<Question<proto::SetLearningRateResponse>>
Client::StartSetLearningRate(const proto::SetLearningRateRequest& request) {
  using Asked = Question<proto::SetLearningRateResponse>;
  return std::make_unique<Asked>(
      context_, rpc::kSetLearningRate, request,
      Asked::Options{nullptr, ByCoordinator("the answer to SetLearningRate"),
                     nullptr, /*regardless=*/true});
}

void Client::OnRefused(const absl::Status& why) {
  if (!trains_) return;
  uint64_t generation;
  {
    absl::MutexLock lock(&context_->mutex);
    if (context_->IsOver(nullptr) || IsEnd(context_->state().phase()) ||
        std::exchange(refused_, true)) {
      return;
    }
    generation = context_->sender().generation();
  }
  proto::LeaveRequest request;
  request.set_error(std::string(why.message()));
  news_calls_.Start(
      rpc::kLeave, 0, std::move(request),
      [this, generation](const absl::StatusOr<proto::LeaveResponse>& left) {
        // A coordinator that waits for nobody may end before the session hears.
        absl::MutexLock lock(&context_->mutex);
        if (left.ok()) {
          context_->Note(generation, &left->state(), std::nullopt);
        }
        return Next::kDone;
      });
}

void Client::LookForNews() {
  if (member_) return;
  {
    absl::MutexLock lock(&context_->mutex);
    if (std::exchange(looking_, true)) return;
  }
  news_calls_.Start(rpc::kGetPlacement, 0, proto::GetPlacementRequest(),
                    [this](const absl::StatusOr<proto::GetPlacementResponse>&) {
                      absl::MutexLock lock(&context_->mutex);
                      looking_ = false;
                      return Next::kDone;
                    });
}

}  // namespace holdfast::client
