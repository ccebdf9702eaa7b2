#include "client/wire.h"

#include <grpcpp/channel.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/call.h"
#include "common/rpc/channel.h"
#include "common/task_id.h"
#include "proto/coordinator.grpc.pb.h"
#include "proto/shard.grpc.pb.h"

namespace holdfast::client {
namespace {

// How often AwaitConnected looks whether the job still goes on.
constexpr absl::Duration kLookEvery = absl::Milliseconds(200);

// Fields that only some messages have.
template <typename Response>
auto StateOf(const Response& response, int)
    -> std::decay_t<decltype(response.state())> {
  return response.state();
}
template <typename Response>
proto::JobState StateOf(const Response&, long) {
  return {};
}

template <typename Response>
auto DurableStepOf(const Response& response, int)
    -> std::optional<decltype(response.durable_step())> {
  return response.durable_step();
}
template <typename Response>
std::optional<uint64_t> DurableStepOf(const Response&, long) {
  return std::nullopt;
}

template <typename Response>
auto VerdictOf(const Response& response, int) -> decltype(response.verdict()) {
  return response.verdict();
}
template <typename Response>
proto::Verdict VerdictOf(const Response&, long) {
  return proto::VERDICT_UNSPECIFIED;
}

template <typename Request>
auto HasSender(int) -> decltype(std::declval<Request>().sender(), true) {
  return true;
}
template <typename Request>
bool HasSender(long) {
  return false;
}

bool IsNever(const absl::Status&) { return false; }
bool IsAborted(const absl::Status& error) { return absl::IsAborted(error); }
bool IsAbortedOrUnknown(const absl::Status& error) {
  return absl::IsAborted(error) || absl::IsNotFound(error);
}

}  // namespace

struct Wire::Impl {
  struct Ps {
    std::string name;
    // For tensors. One for control connects when it is first used.
    std::shared_ptr<grpc::Channel> channel;
    std::unique_ptr<proto::Shard::Stub> stub;
    std::unique_ptr<proto::Shard::Stub> control;
  };
  // A method of a stub's async().
  template <typename Async, typename Request, typename Response>
  using AsyncMethod = void (Async::*)(grpc::ClientContext*, const Request*,
                                      Response*,
                                      std::function<void(grpc::Status)>);
  using CoordinatorAsync = proto::Coordinator::StubInterface::async_interface;
  using ShardAsync = proto::Shard::StubInterface::async_interface;

  // `timeout`: of one attempt.
  template <typename Async, typename Request, typename Response>
  void Start(const CallGroup& group, const std::string& peer, Async* async,
             AsyncMethod<Async, Request, Response> method,
             absl::Duration timeout, Unexplained unexplained, Request request,
             Answer<Response> answer) const {
    auto attempt = [async, method, context = context](
                       grpc::ClientContext* call, const Request* request,
                       Response* response,
                       std::function<void(grpc::Status)> done) {
      (async->*method)(
          call, request, response,
          [context, response,
           done = std::move(done)](const grpc::Status& status) {
            done(status.ok() ? Look(*response, context.get()) : status);
          });
    };
    std::make_shared<UnaryCall<Request, Response>>(
        context, group.state(), peer, timeout,
        HasSender<Request>(0) ? unexplained : IsNever, std::move(attempt),
        std::move(request), std::move(answer))
        ->Start();
  }

  // What an answer says about the job. ABORTED where that is all it says.
  template <typename Response>
  static grpc::Status Look(const Response& response, Context* context) {
    context->Note(response.generation(), StateOf(response, 0),
                  DurableStepOf(response, 0));
    if (VerdictOf(response, 0) != proto::ABORTED) return grpc::Status::OK;
    return grpc::Status(grpc::StatusCode::ABORTED,
                        "the generation of the call is over");
  }

  template <typename Request, typename Response>
  void AskCoordinator(const CallGroup& group,
                      AsyncMethod<CoordinatorAsync, Request, Response> method,
                      absl::Duration timeout, Request request,
                      Answer<Response> answer) const {
    CoordinatorAsync* const async = coordinator->async();
    Start(group, ps[0].name, async, method, timeout, IsAbortedOrUnknown,
          std::move(request), std::move(answer));
  }

  template <typename Request, typename Response>
  void AskShard(const CallGroup& group, uint32_t index, ChannelKind kind,
                AsyncMethod<ShardAsync, Request, Response> method,
                absl::Duration timeout, Request request,
                Answer<Response> answer) const {
    const Ps& shard = ps[index];
    ShardAsync* const async =
        (kind == ChannelKind::kControl ? shard.control : shard.stub)->async();
    Start(group, shard.name, async, method, timeout, IsAborted,
          std::move(request), std::move(answer));
  }

  const std::shared_ptr<Context> context;
  std::unique_ptr<proto::Coordinator::Stub> coordinator;
  std::vector<Ps> ps;
};

Wire::Wire(std::shared_ptr<Context> context,
           const std::vector<std::string>& ps_addresses)
    : impl_(new Impl{std::move(context)}) {
  for (uint32_t ps = 0; ps < ps_addresses.size(); ++ps) {
    const std::string& address = ps_addresses[ps];
    auto channel = MakeChannel(address, ChannelKind::kTensors);
    auto stub = proto::Shard::NewStub(channel);
    auto control = MakeChannel(address, ChannelKind::kControl);
    if (ps == 0) impl_->coordinator = proto::Coordinator::NewStub(control);
    impl_->ps.push_back(
        {absl::StrCat(TaskId{kPsJob, ps}.ToString(), " (", address, ")"),
         std::move(channel), std::move(stub), proto::Shard::NewStub(control)});
  }
}

Wire::~Wire() {
  Context& context = *impl_->context;
  absl::MutexLock lock(&context.mutex);
  const auto none_out = [&context] { return context.calls_out == 0; };
  context.mutex.Await(absl::Condition(&none_out));
}

uint32_t Wire::num_ps() const {
  return static_cast<uint32_t>(impl_->ps.size());
}

const std::string& Wire::PsName(uint32_t ps) const {
  return impl_->ps[ps].name;
}

absl::Status Wire::AwaitConnected(absl::Time deadline) {
  Context& context = *impl_->context;
  absl::Time report = absl::Now() + context.timing.first_report;
  for (uint32_t ps = 0; ps < num_ps(); ++ps) {
    for (;;) {
      const absl::Time look = std::min(deadline, absl::Now() + kLookEvery);
      if (impl_->ps[ps].channel->WaitForConnected(absl::ToChronoTime(look))) {
        break;
      }
      {
        absl::MutexLock lock(&context.mutex);
        if (context.IsOver(std::nullopt)) return context.WhyOver(std::nullopt);
      }
      if (absl::Now() >= deadline) {
        return absl::UnavailableError(
            absl::StrCat(PsName(ps), ": no connection could be made"));
      }
      if (context.on_waiting && absl::Now() >= report) {
        context.on_waiting(absl::StrCat("a connection to ", PsName(ps)));
        report = absl::Now() + context.timing.report_every;
      }
    }
  }
  return absl::OkStatus();
}

void Wire::Declare(const CallGroup& group, proto::DeclareRequest request,
                   Answer<proto::DeclareResponse> answer) {
  impl_->AskCoordinator(group, &Impl::CoordinatorAsync::Declare,
                        impl_->context->timing.attempt, std::move(request),
                        std::move(answer));
}

void Wire::GetPlacement(const CallGroup& group,
                        proto::GetPlacementRequest request,
                        Answer<proto::GetPlacementResponse> answer) {
  const absl::Duration timeout =
      impl_->context->timing.attempt + absl::Milliseconds(request.wait_ms());
  impl_->AskCoordinator(group, &Impl::CoordinatorAsync::GetPlacement, timeout,
                        std::move(request), std::move(answer));
}

void Wire::Contribute(const CallGroup& group, proto::ContributeRequest request,
                      Answer<proto::ContributeResponse> answer) {
  const absl::Duration timeout =
      impl_->context->timing.attempt + absl::Milliseconds(request.wait_ms());
  impl_->AskCoordinator(group, &Impl::CoordinatorAsync::Contribute, timeout,
                        std::move(request), std::move(answer));
}

void Wire::TakeTicket(const CallGroup& group, proto::TakeTicketRequest request,
                      Answer<proto::TakeTicketResponse> answer) {
  const absl::Duration timeout =
      impl_->context->timing.attempt + absl::Milliseconds(request.wait_ms());
  impl_->AskCoordinator(group, &Impl::CoordinatorAsync::TakeTicket, timeout,
                        std::move(request), std::move(answer));
}

void Wire::ReportEvaluation(const CallGroup& group,
                            proto::ReportEvaluationRequest request,
                            Answer<proto::ReportEvaluationResponse> answer) {
  impl_->AskCoordinator(group, &Impl::CoordinatorAsync::ReportEvaluation,
                        impl_->context->timing.attempt, std::move(request),
                        std::move(answer));
}

void Wire::GetStatus(const CallGroup& group, proto::GetStatusRequest request,
                     Answer<proto::GetStatusResponse> answer) {
  impl_->AskCoordinator(group, &Impl::CoordinatorAsync::GetStatus,
                        impl_->context->timing.attempt, std::move(request),
                        std::move(answer));
}

void Wire::Checkpoint(const CallGroup& group, proto::CheckpointRequest request,
                      Answer<proto::CheckpointResponse> answer) {
  const absl::Duration timeout =
      impl_->context->timing.attempt + absl::Milliseconds(request.wait_ms());
  impl_->AskCoordinator(group, &Impl::CoordinatorAsync::Checkpoint, timeout,
                        std::move(request), std::move(answer));
}

void Wire::Push(const CallGroup& group, uint32_t ps, proto::PushRequest request,
                Answer<proto::PushResponse> answer) {
  impl_->AskShard(group, ps, ChannelKind::kTensors, &Impl::ShardAsync::Push,
                  impl_->context->timing.tensors_attempt, std::move(request),
                  std::move(answer));
}

void Wire::Apply(const CallGroup& group, uint32_t ps,
                 proto::ApplyRequest request,
                 Answer<proto::ApplyResponse> answer) {
  const absl::Duration timeout =
      impl_->context->timing.attempt + absl::Milliseconds(request.wait_ms());
  impl_->AskShard(group, ps, ChannelKind::kControl, &Impl::ShardAsync::Apply,
                  timeout, std::move(request), std::move(answer));
}

void Wire::Pull(const CallGroup& group, uint32_t ps, proto::PullRequest request,
                Answer<proto::PullResponse> answer) {
  const absl::Duration timeout = impl_->context->timing.tensors_attempt +
                                 absl::Milliseconds(request.wait_ms());
  impl_->AskShard(group, ps, ChannelKind::kTensors, &Impl::ShardAsync::Pull,
                  timeout, std::move(request), std::move(answer));
}

void Wire::Pin(const CallGroup& group, uint32_t ps, proto::PinRequest request,
               Answer<proto::PinResponse> answer) {
  impl_->AskShard(group, ps, ChannelKind::kTensors, &Impl::ShardAsync::Pin,
                  impl_->context->timing.attempt, std::move(request),
                  std::move(answer));
}

void Wire::Unpin(const CallGroup& group, uint32_t ps,
                 proto::UnpinRequest request,
                 Answer<proto::UnpinResponse> answer) {
  impl_->AskShard(group, ps, ChannelKind::kTensors, &Impl::ShardAsync::Unpin,
                  impl_->context->timing.attempt, std::move(request),
                  std::move(answer));
}

}  // namespace holdfast::client
