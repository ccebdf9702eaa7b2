#include "client/wire.h"

#include <grpcpp/channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <pthread.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/call.h"
#include "common/clock.h"
#include "common/rpc/channel.h"
#include "common/rpc/deadline.h"
#include "common/rpc/diagnosis.h"
#include "common/rpc/message_bytes.h"
#include "common/rpc/tensor_codec.h"
#include "common/task_id.h"
#include "glog/logging.h"

namespace holdfast::client {
namespace {

// How long what comes in may lie unread while nobody waits. A shorter one wakes
// a thread more often for nothing, while calls follow one another.
constexpr absl::Duration kUnwatched = absl::Milliseconds(2);

// How often AwaitConnected looks whether the job still goes on.
constexpr absl::Duration kLookEvery = absl::Milliseconds(200);

// How long a connection may take before anybody looks what keeps it.
constexpr absl::Duration kLookAfter = absl::Seconds(1);

// Fields that only some messages have.
template <typename Response>
auto GenerationOf(const Response& response, int)
    -> std::optional<decltype(response.generation())> {
  return response.generation();
}
template <typename Response>
std::optional<uint64_t> GenerationOf(const Response&, long) {
  return std::nullopt;
}

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

// Messages with and without tensors, to and from bytes.
template <typename Message>
grpc::ByteBuffer Encode(const WithTensors<Message>& message) {
  return EncodeWithTensors(message.message, message.tensors);
}
template <typename Message>
grpc::ByteBuffer Encode(const Message& message) {
  grpc::ByteBuffer bytes;
  const absl::Status status = ToBytes(message, &bytes);
  CHECK(status.ok()) << status;
  return bytes;
}
template <typename Message>
bool Decode(grpc::ByteBuffer* bytes, WithTensors<Message>* message) {
  return DecodeWithTensors(*bytes, &message->message, &message->tensors);
}
template <typename Message>
bool Decode(grpc::ByteBuffer* bytes, Message* message) {
  return FromBytes(bytes, message).ok();
}

template <typename Message>
const Message& MessageOf(const WithTensors<Message>& message) {
  return message.message;
}
template <typename Message>
const Message& MessageOf(const Message& message) {
  return message;
}

// What a trace tells of a request.
template <typename Request>
auto AddStep(const Request& request, TraceSpan::Args* args, int)
    -> decltype(request.step(), void()) {
  args->emplace_back("step", request.step());
}
template <typename Request>
void AddStep(const Request&, TraceSpan::Args*, long) {}
void AddStep(const proto::PullRequest& request, TraceSpan::Args* args, int) {
  args->emplace_back("version", request.has_exact_version()
                                    ? request.exact_version()
                                    : request.min_version());
}

bool IsNever(const absl::Status&) { return false; }
bool IsAborted(const absl::Status& error) { return absl::IsAborted(error); }
bool IsAbortedOrUnknown(const absl::Status& error) {
  return absl::IsAborted(error) || absl::IsNotFound(error);
}

}  // namespace

struct Wire::Impl {
  struct Ps {
    std::string address;
    std::string name;
    // For tensors. One for control connects when it is first used.
    std::shared_ptr<grpc::Channel> channel;
    std::unique_ptr<grpc::GenericStub> tensors;
    std::unique_ptr<grpc::GenericStub> control;
    // With a tracer.
    Tracer::Track tensors_track = 0;
    Tracer::Track control_track = 0;
  };

  // `timeout`: of one attempt.
  template <typename Request, typename Response>
  void Start(const CallGroup& group, uint32_t index, ChannelKind kind,
             std::string method, absl::Duration timeout,
             Unexplained unexplained, Request request,
             Answer<Response> answer) const {
    const Ps& peer = ps[index];
    grpc::GenericStub* const stub =
        (kind == ChannelKind::kTensors ? peer.tensors : peer.control).get();
    const Tracer::Track track =
        kind == ChannelKind::kTensors ? peer.tensors_track : peer.control_track;
    auto attempt = [stub, method = std::move(method), context = context,
                    tracer = tracer,
                    track](grpc::ClientContext* call, const Request* request,
                           Response* response,
                           std::function<void(grpc::Status)> done) {
      TraceSpan span;
      if (tracer != nullptr) {
        span.kind = TraceKind::kRpc;
        span.name = method.substr(method.rfind('/') + 1);
        span.begin = tracer->Now();
        AddStep(MessageOf(*request), &span.args, 0);
      }
      grpc::ByteBuffer message = Encode(*request);
      if (tracer != nullptr) {
        span.args.emplace_back("sent_bytes", message.Length());
      }
      context->queue.Start(
          stub, method, call, std::move(message),
          [context, response, tracer, track, span = std::move(span),
           done = std::move(done)](const grpc::Status& status,
                                   grpc::ByteBuffer* bytes) mutable {
            if (tracer != nullptr) {
              span.end = tracer->Now();
              span.args.emplace_back("received_bytes",
                                     status.ok() ? bytes->Length() : 0);
              span.error = status.error_message();
              tracer->Add(track, std::move(span));
            }
            if (!status.ok()) return done(status);
            if (!Decode(bytes, response)) {
              return done(grpc::Status(grpc::StatusCode::INTERNAL,
                                       "the answer is no message of its kind"));
            }
            done(Look(MessageOf(*response), context.get()));
          });
    };
    std::make_shared<UnaryCall<Request, Response>>(
        context, group.state(), peer.name, timeout,
        HasSender<Request>(0) ? unexplained : IsNever, std::move(attempt),
        std::move(request), std::move(answer))
        ->Start();
  }

  // What an answer says about the job. ABORTED where that is all it says.
  template <typename Response>
  static grpc::Status Look(const Response& response, Context* context) {
    if (const auto generation = GenerationOf(response, 0)) {
      context->Note(*generation, StateOf(response, 0),
                    DurableStepOf(response, 0));
    }
    if (VerdictOf(response, 0) != proto::ABORTED) return grpc::Status::OK;
    return grpc::Status(grpc::StatusCode::ABORTED,
                        "the generation of the call is over");
  }

  template <typename Request, typename Response>
  void AskCoordinator(const CallGroup& group, absl::string_view method,
                      absl::Duration timeout, Request request,
                      Answer<Response> answer) const {
    Start(group, 0, ChannelKind::kControl,
          absl::StrCat("/holdfast.proto.Coordinator/", method), timeout,
          IsAbortedOrUnknown, std::move(request), std::move(answer));
  }

  template <typename Request, typename Response>
  void AskShard(const CallGroup& group, uint32_t index, ChannelKind kind,
                absl::string_view method, absl::Duration timeout,
                Unexplained unexplained, Request request,
                Answer<Response> answer) const {
    Start(group, index, kind, absl::StrCat("/holdfast.proto.Shard/", method),
          timeout, unexplained, std::move(request), std::move(answer));
  }

  // Polls while nobody waits, and wakes who polls.
  void Run() {
    pthread_setname_np(pthread_self(), "wire");
    absl::Mutex& mutex = context->mutex;
    Context::Polling& polling = context->polling;
    const auto called = [&] {
      return stopping || polling.wanted || polling.IsOverForPoller();
    };
    const auto called_or_free = [&] { return called() || !polling.busy; };
    absl::MutexLock lock(&mutex);
    while (!stopping || context->calls_out > 0) {
      const uint64_t turns = polling.turns;
      const bool idle =
          !mutex.AwaitWithTimeout(absl::Condition(&called), kUnwatched);
      polling.wanted = false;
      if (polling.IsOverForPoller()) {
        polling.over = nullptr;  // once
        mutex.Unlock();          // gRPC takes locks of its own
        context->queue.Wake();
        mutex.Lock();
      } else if (polling.busy) {
        // A thread that has polled without an event for so long may do so for
        // much longer.
        if (idle && polling.turns == turns) {
          mutex.Await(absl::Condition(&called_or_free));
        }
      } else if (!idle || polling.turns == turns) {
        PollUntilWaiter(idle);
      }
    }
  }

  // A thread that has something on its way will wait for it soon, and must not
  // come too late for having to wake this one first; so without `idle`, this is
  // not to be woken while events follow one another.
  void PollUntilWaiter(bool idle)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(context->mutex) {
    Context::Polling& polling = context->polling;
    polling.busy = true;
    do {
      polling.may_be_woken = idle;
      // Alarms are cancelled without an event.
      const bool may_rest = idle && !stopping;
      context->mutex.Unlock();
      const bool happened = context->queue.Poll(
          may_rest ? absl::InfiniteFuture() : SteadyNow() + kUnwatched);
      context->mutex.Lock();
      idle = idle || !happened;
    } while (polling.waiters == 0 && !stopping);
    polling.busy = false;
    polling.may_be_woken = false;
  }

  const std::shared_ptr<Context> context;
  const Credentials credentials;
  Tracer* const tracer;
  std::vector<Ps> ps;
  bool stopping = false;  // guarded by the context's mutex
  std::thread thread;
};

Wire::Wire(std::shared_ptr<Context> context,
           const std::vector<std::string>& ps_addresses,
           const Credentials& credentials, Tracer* tracer)
    : impl_(new Impl{std::move(context), credentials, tracer}) {
  impl_->thread = std::thread([this] { impl_->Run(); });
  for (uint32_t ps = 0; ps < ps_addresses.size(); ++ps) {
    const std::string& address = ps_addresses[ps];
    auto channel = MakeChannel(address, ps, ChannelKind::kTensors, credentials);
    auto tensors = std::make_unique<grpc::GenericStub>(channel);
    auto control = std::make_unique<grpc::GenericStub>(
        MakeChannel(address, ps, ChannelKind::kControl, credentials));
    impl_->ps.push_back(
        {address,
         absl::StrCat(TaskId{kPsJob, ps}.ToString(), " (", address, ")"),
         std::move(channel), std::move(tensors), std::move(control)});
    if (tracer == nullptr) continue;
    constexpr auto kOverlapping = Tracer::TrackKind::kOverlapping;
    Impl::Ps& added = impl_->ps.back();
    added.tensors_track =
        tracer->AddTrack(absl::StrCat("tensors: ps ", ps), kOverlapping);
    added.control_track =
        tracer->AddTrack(absl::StrCat("control: ps ", ps), kOverlapping);
  }
}

Wire::~Wire() {
  {
    absl::MutexLock lock(&impl_->context->mutex);
    impl_->stopping = true;
  }
  impl_->context->queue.Wake();
  impl_->thread.join();
}

uint32_t Wire::num_ps() const {
  return static_cast<uint32_t>(impl_->ps.size());
}

const std::string& Wire::PsName(uint32_t ps) const {
  return impl_->ps[ps].name;
}

absl::Status Wire::AwaitConnected(absl::Time deadline, bool fail_fast) {
  absl::Time report = SteadyNow() + impl_->context->timing.first_report;
  for (uint32_t ps = 0; ps < num_ps(); ++ps) {
    absl::Status status = AwaitConnection(ps, deadline, fail_fast, &report);
    if (!status.ok()) return status;
  }
  return AwaitNames(deadline);
}

absl::Status Wire::AwaitConnection(uint32_t ps, absl::Time deadline,
                                   bool fail_fast, absl::Time* report) {
  using Kind = Diagnosis::Kind;
  Context& context = *impl_->context;
  const Impl::Ps& peer = impl_->ps[ps];
  const absl::Time begun = SteadyNow();
  Diagnoser diagnoser(peer.address, ps, impl_->credentials);
  for (;;) {
    const absl::Time until = std::min(deadline, SteadyNow() + kLookEvery);
    if (peer.channel->WaitForConnected(GrpcDeadline(until))) {
      return absl::OkStatus();
    }
    {
      absl::MutexLock lock(&context.mutex);
      if (context.IsOver(std::nullopt)) return context.WhyOver(std::nullopt);
    }
    Diagnosis diagnosis;
    if (fail_fast || SteadyNow() - begun >= kLookAfter) {
      diagnosis = diagnoser.Look();
    }
    if (diagnosis.kind == Kind::kMistake) return Mistake(ps, diagnosis);
    if (fail_fast && diagnosis.kind == Kind::kPassing) {
      return diagnosis.ToStatus(PsName(ps));
    }
    if (SteadyNow() >= deadline) {
      if (!diagnosis.cause.empty()) return diagnosis.ToStatus(PsName(ps));
      return absl::UnavailableError(
          absl::StrCat(PsName(ps), ": no connection could be made"));
    }
    if (context.on_waiting && SteadyNow() >= *report) {
      context.on_waiting(absl::StrCat("a connection to ", PsName(ps),
                                      diagnosis.cause.empty() ? "" : ": ",
                                      diagnosis.cause));
      *report = SteadyNow() + context.timing.report_every;
    }
  }
}

absl::Status Wire::Mistake(uint32_t ps, const Diagnosis& diagnosis) const {
  const absl::Status status = diagnosis.ToStatus(PsName(ps));
  if (!diagnosis.found.has_value() || diagnosis.found->job != kPsJob ||
      diagnosis.found->index >= num_ps()) {
    return status;
  }
  return absl::Status(
      status.code(),
      absl::StrCat(status.message(), "; the ClusterSpec here has ",
                   diagnosis.found->ToString(), " at ",
                   impl_->ps[diagnosis.found->index].address));
}

absl::Status Wire::AwaitNames(absl::Time deadline) {
  absl::Mutex& mutex = impl_->context->mutex;
  // By ps.
  std::vector<std::optional<absl::Status>> answers(num_ps());
  CallGroup group(impl_->context);
  for (uint32_t ps = 0; ps < num_ps(); ++ps) {
    Check(group, ps, [&mutex, answer = &answers[ps]](const auto& response) {
      absl::MutexLock lock(&mutex);
      *answer = response.status();
      return Next::kDone;
    });
  }
  const auto find_silent = [&] {
    return std::find(answers.begin(), answers.end(), std::nullopt);
  };
  const absl::Status status = group.Await(
      deadline, [&] { return find_silent() == answers.end(); },
      [&] {
        return absl::StrCat("the answer of ",
                            PsName(find_silent() - answers.begin()));
      });
  group.Cancel();
  if (!status.ok()) return status;
  for (uint32_t ps = 0; ps < num_ps(); ++ps) {
    const Diagnosis diagnosis = JudgeHealthCheck(*answers[ps], ps);
    if (diagnosis.kind == Diagnosis::Kind::kMistake) {
      return Mistake(ps, diagnosis);
    }
    if (!answers[ps]->ok() && !absl::IsNotFound(*answers[ps])) {
      return *answers[ps];
    }
  }
  return absl::OkStatus();
}

void Wire::Check(const CallGroup& group, uint32_t ps,
                 Answer<grpc::health::v1::HealthCheckResponse> answer) {
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(TaskId{kPsJob, ps}.ToString());
  impl_->Start(group, ps, ChannelKind::kTensors, kHealthCheck,
               impl_->context->timing.attempt, IsNever, std::move(request),
               std::move(answer));
}

void Wire::Declare(const CallGroup& group, proto::DeclareRequest request,
                   Answer<proto::DeclareResponse> answer) {
  impl_->AskCoordinator(group, "Declare", impl_->context->timing.attempt,
                        std::move(request), std::move(answer));
}

void Wire::GetPlacement(const CallGroup& group,
                        proto::GetPlacementRequest request,
                        Answer<proto::GetPlacementResponse> answer) {
  const absl::Duration timeout =
      impl_->context->timing.attempt + absl::Milliseconds(request.wait_ms());
  impl_->AskCoordinator(group, "GetPlacement", timeout, std::move(request),
                        std::move(answer));
}

void Wire::Contribute(const CallGroup& group, proto::ContributeRequest request,
                      Answer<proto::ContributeResponse> answer) {
  const absl::Duration timeout =
      impl_->context->timing.attempt + absl::Milliseconds(request.wait_ms());
  impl_->AskCoordinator(group, "Contribute", timeout, std::move(request),
                        std::move(answer));
}

void Wire::TakeTicket(const CallGroup& group, proto::TakeTicketRequest request,
                      Answer<proto::TakeTicketResponse> answer) {
  const absl::Duration timeout =
      impl_->context->timing.attempt + absl::Milliseconds(request.wait_ms());
  impl_->AskCoordinator(group, "TakeTicket", timeout, std::move(request),
                        std::move(answer));
}

void Wire::ReportEvaluation(const CallGroup& group,
                            proto::ReportEvaluationRequest request,
                            Answer<proto::ReportEvaluationResponse> answer) {
  impl_->AskCoordinator(group, "ReportEvaluation",
                        impl_->context->timing.attempt, std::move(request),
                        std::move(answer));
}

void Wire::GetStatus(const CallGroup& group, proto::GetStatusRequest request,
                     Answer<proto::GetStatusResponse> answer) {
  impl_->AskCoordinator(group, "GetStatus", impl_->context->timing.attempt,
                        std::move(request), std::move(answer));
}

void Wire::Checkpoint(const CallGroup& group, proto::CheckpointRequest request,
                      Answer<proto::CheckpointResponse> answer) {
  const absl::Duration timeout =
      impl_->context->timing.attempt + absl::Milliseconds(request.wait_ms());
  impl_->AskCoordinator(group, "Checkpoint", timeout, std::move(request),
                        std::move(answer));
}

void Wire::Push(const CallGroup& group, uint32_t ps,
                WithTensors<proto::PushRequest> request,
                Answer<proto::PushResponse> answer) {
  {
    // It is begun while a gradient is still being computed.
    absl::MutexLock lock(&impl_->context->mutex);
    Context::Polling& polling = impl_->context->polling;
    if (!polling.busy && polling.waiters == 0) polling.wanted = true;
  }
  impl_->AskShard(group, ps, ChannelKind::kTensors, "Push",
                  impl_->context->timing.tensors_attempt, IsAborted,
                  std::move(request), std::move(answer));
}

void Wire::PushPull(const CallGroup& group, uint32_t ps,
                    WithTensors<proto::PushPullRequest> request,
                    Answer<WithTensors<proto::PushPullResponse>> answer) {
  const absl::Duration timeout = impl_->context->timing.tensors_attempt +
                                 absl::Milliseconds(request.message.wait_ms());
  // Also the coordinator is asked.
  impl_->AskShard(group, ps, ChannelKind::kTensors, "PushPull", timeout,
                  IsAbortedOrUnknown, std::move(request), std::move(answer));
}

void Wire::Apply(const CallGroup& group, uint32_t ps,
                 proto::ApplyRequest request,
                 Answer<proto::ApplyResponse> answer) {
  const absl::Duration timeout =
      impl_->context->timing.attempt + absl::Milliseconds(request.wait_ms());
  impl_->AskShard(group, ps, ChannelKind::kControl, "Apply", timeout, IsAborted,
                  std::move(request), std::move(answer));
}

void Wire::Pull(const CallGroup& group, uint32_t ps, proto::PullRequest request,
                Answer<WithTensors<proto::PullResponse>> answer) {
  const absl::Duration timeout = impl_->context->timing.tensors_attempt +
                                 absl::Milliseconds(request.wait_ms());
  impl_->AskShard(group, ps, ChannelKind::kTensors, "Pull", timeout, IsAborted,
                  std::move(request), std::move(answer));
}

void Wire::Pin(const CallGroup& group, uint32_t ps, proto::PinRequest request,
               Answer<proto::PinResponse> answer) {
  impl_->AskShard(group, ps, ChannelKind::kControl, "Pin",
                  impl_->context->timing.attempt, IsAborted, std::move(request),
                  std::move(answer));
}

void Wire::Unpin(const CallGroup& group, uint32_t ps,
                 proto::UnpinRequest request,
                 Answer<proto::UnpinResponse> answer) {
  impl_->AskShard(group, ps, ChannelKind::kControl, "Unpin",
                  impl_->context->timing.attempt, IsAborted, std::move(request),
                  std::move(answer));
}

}  // namespace holdfast::client
