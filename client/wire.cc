// SPDX-License-Identifier: Apache-2.0
#include "client/wire.h"

#include <grpcpp/alarm.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/byte_buffer.h>
#include <pthread.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/call_group.h"
#include "client/rpc.h"
#include "client/shared_attempt.h"
#include "common/base/status_macros.h"
#include "common/job/task_id.h"
#include "common/rpc/channel.h"
#include "common/rpc/deadline.h"
#include "common/rpc/message_bytes.h"
#include "common/rpc/status.h"
#include "common/rpc/tensor_codec.h"
#include "common/trace/trace_request.h"
#include "glog/logging.h"
#include "proto/health.pb.h"

namespace holdfast::client {
namespace {

// How long incoming messages may stay unread while no thread waits. A shorter
// time wakes a thread more often for nothing while calls follow one another.
constexpr absl::Duration kUnwatched = absl::Milliseconds(2);

// How often AwaitConnected checks whether the job still continues, and whether
// it must give up.
constexpr absl::Duration kLookEvery = absl::Milliseconds(200);

absl::Status GivenUp() {
  return absl::CancelledError("told to give up connecting");
}

// How long a connection may take before the cause of the delay is examined.
constexpr absl::Duration kLookAfter = absl::Seconds(1);

// Asks a ps whether it is the expected task.
constexpr RpcOf<grpc::health::v1::HealthCheckRequest,
                grpc::health::v1::HealthCheckResponse>
    kCheckHealth(kHealthCheck, ChannelKind::kTensors, &Timing::attempt,
                 /*asks_coordinator=*/false);

// Conversion of messages with and without tensors to and from bytes.
grpc::ByteBuffer Encode(const Rpc& rpc,
                        const google::protobuf::Message& request,
                        absl::Span<const TensorPiece> tensors) {
  if (const int field = rpc.request_tensors_field; field != 0) {
    return EncodeTensors(request, field, tensors);
  }
  grpc::ByteBuffer bytes;
  const absl::Status status = ToBytes(request, &bytes);
  CHECK(status.ok()) << status;
  return bytes;
}
bool Decode(grpc::ByteBuffer* bytes, const Attempt& attempt) {
  if (const int field = attempt.rpc->response_tensors_field; field != 0) {
    return DecodeTensors(*bytes, field, attempt.response,
                         attempt.response_tensors);
  }
  return grpc::SerializationTraits<google::protobuf::Message>::Deserialize(
             bytes, attempt.response)
      .ok();
}

}  // namespace

struct Wire::Ps {
  std::string address;
  // For tensors. The control channel connects when it is first used.
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<grpc::GenericStub> tensors;
  std::unique_ptr<grpc::GenericStub> control;
};

class Wire::GrpcAttempt final
    : public AttemptOperation,
      public std::enable_shared_from_this<GrpcAttempt> {
 public:
  GrpcAttempt(Wire* wire, Attempt attempt)
      : wire_(wire), attempt_(std::move(attempt)) {
    context_.set_deadline(GrpcDeadline(SteadyNow() + attempt_.timeout));
  }

  void Start() override {
    const Ps& peer = wire_->ps_[attempt_.ps];
    const bool tensors = attempt_.rpc->channel == ChannelKind::kTensors;
    if (wire_->recording()) BeginSpan();
    if (wire_->neighbors_ != nullptr && tensors) {
      auto shared = SharedAttempt::Begin(wire_->neighbors_.get(), attempt_);
      if (!shared.ok()) return End(shared.status());
      shared_ = *std::move(shared);
    }
    const grpc::ByteBuffer message =
        shared_ != nullptr ? Encode(*attempt_.rpc, shared_->request(),
                                    shared_->request_tensors())
                           : Encode(*attempt_.rpc, *attempt_.request,
                                    attempt_.request_tensors);
    if (span_ != nullptr) {
      span_->args.emplace_back("sent_bytes", message.Length());
    }
    wire_->queue_.Start((tensors ? peer.tensors : peer.control).get(),
                        attempt_.rpc->path, &context_, message,
                        [self = shared_from_this()](const grpc::Status& status,
                                                    grpc::ByteBuffer* bytes) {
                          self->OnAnswer(status, bytes);
                        });
  }

  void Cancel() override { context_.TryCancel(); }

 private:
  void BeginSpan() {
    span_ = std::make_unique<TraceSpan>();
    span_->kind = TraceKind::kRpc;
    span_->name = std::string(attempt_.rpc->name());
    span_->begin = SteadyNow();
    AddRequestArgs(*attempt_.request, &span_->args);
  }

  void EndSpan(const grpc::Status& status, const grpc::ByteBuffer& bytes) {
    span_->end = SteadyNow();
    span_->args.emplace_back("received_bytes",
                             status.ok() ? bytes.Length() : 0);
    span_->error = status.error_message();
    const bool tensors = attempt_.rpc->channel == ChannelKind::kTensors;
    for (const Recorder& recorder : wire_->recorders_) {
      recorder.tracer->Add(
          (tensors ? recorder.tensors : recorder.control)[attempt_.ps], *span_);
    }
    span_.reset();
  }

  void OnAnswer(const grpc::Status& status, grpc::ByteBuffer* bytes) {
    if (span_ != nullptr) EndSpan(status, *bytes);
    End(status.ok() ? TakeAnswer(bytes) : FromGrpcStatus(status));
  }

  absl::Status TakeAnswer(grpc::ByteBuffer* bytes) {
    if (!Decode(bytes, attempt_)) {
      return absl::InternalError(
          "the answer does not parse as its message type");
    }
    if (shared_ == nullptr || attempt_.response_tensors == nullptr) {
      return absl::OkStatus();
    }
    return shared_->TakeValues(attempt_.response_tensors);
  }

  void End(const absl::Status& status) {
    shared_.reset();
    // `done` may hold the last reference to this.
    auto done = std::exchange(attempt_.done, nullptr);
    done(status);
    done = nullptr;
    absl::MutexLock lock(&wire_->mutex_);
    --wire_->out_;
  }

  Wire* const wire_;
  Attempt attempt_;
  // Null: nothing is lent.
  std::unique_ptr<SharedAttempt> shared_;
  grpc::ClientContext context_;
  std::unique_ptr<TraceSpan> span_;
};

class Wire::GrpcPause final : public Operation,
                              public std::enable_shared_from_this<GrpcPause> {
 public:
  GrpcPause(Wire* wire, absl::AnyInvocable<void()> over)
      : wire_(wire), over_(std::move(over)) {}

  void Start(absl::Duration delay) {
    // The alarm holds the function until it is destroyed.
    alarm_->Set(GrpcDeadline(SteadyNow() + delay),
                [self = shared_from_this()](bool) { self->Ring(); });
  }

  void Cancel() override {
    std::shared_ptr<grpc::Alarm> alarm;
    {
      absl::MutexLock lock(&wire_->mutex_);
      alarm = alarm_;
    }
    if (alarm != nullptr) alarm->Cancel();
  }

 private:
  void Ring() {
    std::shared_ptr<grpc::Alarm> alarm;
    {
      absl::MutexLock lock(&wire_->mutex_);
      alarm.swap(alarm_);
    }
    std::exchange(over_, nullptr)();
    absl::MutexLock lock(&wire_->mutex_);
    --wire_->out_;
  }

  Wire* const wire_;
  absl::AnyInvocable<void()> over_;
  // Guarded by the wire's mutex.
  std::shared_ptr<grpc::Alarm> alarm_ = std::make_shared<grpc::Alarm>();
};

bool Wire::recording() const {
  return std::any_of(
      recorders_.begin(), recorders_.end(),
      [](const Recorder& recorder) { return recorder.tracer->recording(); });
}

std::shared_ptr<Transport::AttemptOperation> Wire::Prepare(Attempt attempt) {
  ++out_;
  // A push begins while a gradient is still being computed, so no thread waits
  // for its answer yet.
  if (attempt.rpc == &rpc::kPush && !polling_.busy && polling_.waiters == 0) {
    polling_.wanted = true;
  }
  return std::make_shared<GrpcAttempt>(this, std::move(attempt));
}

std::shared_ptr<Transport::Operation> Wire::After(
    absl::Duration delay, absl::AnyInvocable<void()> over) {
  ++out_;
  auto pause = std::make_shared<GrpcPause>(this, std::move(over));
  pause->Start(delay);
  return pause;
}

void Wire::Wait(absl::FunctionRef<bool()> over, absl::Time until) {
  ++polling_.waiters;
  while (!over()) {
    if (SteadyNow() >= until) break;
    if (!polling_.busy) {
      polling_.busy = true;
      ++polling_.turns;
      polling_.over = &over;
      polling_.poller = std::this_thread::get_id();
      mutex_.Unlock();
      queue_.Poll(until);
      mutex_.Lock();
      polling_.over = nullptr;
      polling_.busy = false;
    } else if (std::exchange(polling_.may_be_woken, false)) {
      mutex_.Unlock();  // gRPC takes its own locks
      queue_.Wake();
      mutex_.Lock();
    } else {
      const auto may_go_on = [&] { return over() || !polling_.busy; };
      mutex_.AwaitWithTimeout(absl::Condition(&may_go_on), until - SteadyNow());
    }
  }
  --polling_.waiters;
}

void Wire::Run() {
  pthread_setname_np(pthread_self(), "wire");
  const auto called = [&] {
    return stopping_ || polling_.wanted || polling_.IsOverForPoller();
  };
  const auto called_or_free = [&] { return called() || !polling_.busy; };
  absl::MutexLock lock(&mutex_);
  while (!stopping_ || out_ > 0) {
    const uint64_t turns = polling_.turns;
    const bool idle =
        !mutex_.AwaitWithTimeout(absl::Condition(&called), kUnwatched);
    polling_.wanted = false;
    if (polling_.IsOverForPoller()) {
      polling_.over = nullptr;  // once
      mutex_.Unlock();          // gRPC takes its own locks
      queue_.Wake();
      mutex_.Lock();
    } else if (polling_.busy) {
      // A thread that has polled for so long without an event may do so for
      // much longer.
      if (idle && polling_.turns == turns) {
        mutex_.Await(absl::Condition(&called_or_free));
      }
    } else if (!idle || polling_.turns == turns) {
      PollUntilWaiter(idle);
    }
  }
}

// A thread that has a call in flight will soon wait for it, and should not lose
// time by having to wake this thread first; so without `idle`, this thread is
// not woken while events follow one another.
void Wire::PollUntilWaiter(bool idle) {
  polling_.busy = true;
  do {
    polling_.may_be_woken = idle;
    // Alarms are cancelled without an event.
    const bool may_rest = idle && !stopping_;
    mutex_.Unlock();
    const bool happened = queue_.Poll(may_rest ? absl::InfiniteFuture()
                                               : SteadyNow() + kUnwatched);
    mutex_.Lock();
    idle = idle || !happened;
  } while (polling_.waiters == 0 && !stopping_);
  polling_.busy = false;
  polling_.may_be_woken = false;
}

Wire::Wire(const std::vector<std::string>& ps_addresses,
           const Credentials& credentials, const std::vector<Tracer*>& tracers,
           std::unique_ptr<Neighbors> neighbors)
    : credentials_(credentials), neighbors_(std::move(neighbors)) {
  for (uint32_t ps = 0; ps < ps_addresses.size(); ++ps) {
    const std::string& address = ps_addresses[ps];
    auto channel = MakeChannel(address, ps, ChannelKind::kTensors, credentials);
    auto tensors = std::make_unique<grpc::GenericStub>(channel);
    auto control = std::make_unique<grpc::GenericStub>(
        MakeChannel(address, ps, ChannelKind::kControl, credentials));
    ps_.push_back(
        {address, std::move(channel), std::move(tensors), std::move(control)});
  }
  for (Tracer* tracer : tracers) {
    if (tracer == nullptr) continue;
    constexpr auto kOverlapping = Tracer::TrackKind::kOverlapping;
    Recorder& added = recorders_.emplace_back();
    added.tracer = tracer;
    for (size_t ps = 0; ps < ps_addresses.size(); ++ps) {
      added.tensors.push_back(
          tracer->AddTrack(absl::StrCat("tensors: ps ", ps), kOverlapping));
      added.control.push_back(
          tracer->AddTrack(absl::StrCat("control: ps ", ps), kOverlapping));
    }
  }
  thread_ = std::thread([this] { Run(); });
}

Wire::~Wire() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  queue_.Wake();
  thread_.join();
}

absl::Status Wire::AwaitConnected(const std::shared_ptr<Context>& context,
                                  absl::Time deadline, bool fail_fast,
                                  const std::function<bool()>& give_up) {
  absl::Time report = SteadyNow() + context->timing.first_report;
  for (uint32_t ps = 0; ps < ps_.size(); ++ps) {
    HOLDFAST_RETURN_IF_ERROR(
        AwaitConnection(*context, ps, deadline, fail_fast, give_up, &report));
  }
  return AwaitNames(context, deadline, give_up);
}

absl::Status Wire::AwaitConnection(const Context& context, uint32_t ps,
                                   absl::Time deadline, bool fail_fast,
                                   const std::function<bool()>& give_up,
                                   absl::Time* report) {
  using Kind = Diagnosis::Kind;
  const Ps& peer = ps_[ps];
  const absl::Time begun = SteadyNow();
  Diagnoser diagnoser(peer.address, ps, credentials_);
  for (;;) {
    const absl::Time until = std::min(deadline, SteadyNow() + kLookEvery);
    if (peer.channel->WaitForConnected(GrpcDeadline(until))) {
      return absl::OkStatus();
    }
    {
      absl::MutexLock lock(&context.mutex);
      if (context.IsOver(nullptr)) return context.WhyOver(nullptr);
      // Once the job is done, ps may have ended, and no connection to them is
      // needed.
      if (context.state().phase() == proto::DONE) return absl::OkStatus();
    }
    if (give_up && give_up()) return GivenUp();
    Diagnosis diagnosis;
    if (fail_fast || SteadyNow() - begun >= kLookAfter) {
      diagnosis = diagnoser.Look();
    }
    if (diagnosis.kind == Kind::kMistake)
      return Mistake(context, ps, diagnosis);
    if (fail_fast && diagnosis.kind == Kind::kPassing) {
      return diagnosis.ToStatus(context.ps_names[ps]);
    }
    if (SteadyNow() >= deadline) {
      if (!diagnosis.cause.empty())
        return diagnosis.ToStatus(context.ps_names[ps]);
      return absl::UnavailableError(
          absl::StrCat(context.ps_names[ps], ": no connection could be made"));
    }
    if (context.on_waiting && SteadyNow() >= *report) {
      context.on_waiting(absl::StrCat("a connection to ", context.ps_names[ps],
                                      diagnosis.cause.empty() ? "" : ": ",
                                      diagnosis.cause));
      *report = SteadyNow() + context.timing.report_every;
    }
  }
}

absl::Status Wire::Mistake(const Context& context, uint32_t ps,
                           const Diagnosis& diagnosis) const {
  const absl::Status status = diagnosis.ToStatus(context.ps_names[ps]);
  if (!diagnosis.found.has_value() || diagnosis.found->job != kPsJob ||
      diagnosis.found->index >= ps_.size()) {
    return status;
  }
  return absl::Status(
      status.code(),
      absl::StrCat(status.message(), "; the ClusterSpec here has ",
                   diagnosis.found->ToString(), " at ",
                   ps_[diagnosis.found->index].address));
}

absl::Status Wire::AwaitNames(const std::shared_ptr<Context>& context,
                              absl::Time deadline,
                              const std::function<bool()>& give_up) {
  // Indexed by ps.
  std::vector<std::optional<absl::Status>> answers(ps_.size());
  CallGroup group(context);
  for (uint32_t ps = 0; ps < ps_.size(); ++ps) {
    grpc::health::v1::HealthCheckRequest request;
    request.set_service(TaskId{kPsJob, ps}.ToString());
    group.Start(kCheckHealth, ps, std::move(request),
                [this, answer = &answers[ps]](const auto& response) {
                  absl::MutexLock lock(&mutex_);
                  *answer = response.status();
                  return Next::kDone;
                });
  }
  const auto find_silent = [&] {
    return std::find(answers.begin(), answers.end(), std::nullopt);
  };
  const auto here = [&] {
    context->mutex.AssertHeld();
    return find_silent() == answers.end() ||
           context->state().phase() == proto::DONE;
  };
  const auto what = [&] {
    return absl::StrCat("the answer of ",
                        context->ps_names[find_silent() - answers.begin()]);
  };
  CallGroup::NextReport report;
  absl::Status status;
  for (;;) {
    const absl::Time until = std::min(deadline, SteadyNow() + kLookEvery);
    if (group.Wait(until, here, what, &report) || until >= deadline) {
      status = group.Await(until, here, what);
      break;
    }
    if (give_up && give_up()) {
      status = GivenUp();
      break;
    }
  }
  group.Cancel();
  if (!status.ok()) return status;
  for (uint32_t ps = 0; ps < ps_.size(); ++ps) {
    if (!answers[ps].has_value()) continue;  // the job is done
    const Diagnosis diagnosis = JudgeHealthCheck(*answers[ps], ps);
    if (diagnosis.kind == Diagnosis::Kind::kMistake) {
      return Mistake(*context, ps, diagnosis);
    }
    if (!answers[ps]->ok() && !absl::IsNotFound(*answers[ps])) {
      return *answers[ps];
    }
  }
  return absl::OkStatus();
}

}  // namespace holdfast::client
