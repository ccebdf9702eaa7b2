// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/session.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "common/base/nonce.h"
#include "common/base/printable_text.h"
#include "common/base/status_macros.h"
#include "common/job/job_phase.h"
#include "common/process/json_log.h"
#include "common/process/process_name.h"
#include "common/rpc/backoff.h"
#include "common/rpc/channel.h"
#include "common/rpc/deadline.h"
#include "common/rpc/diagnosis.h"
#include "common/rpc/message_bytes.h"
#include "common/rpc/rpc_limits.h"
#include "common/rpc/status.h"
#include "google/protobuf/util/message_differencer.h"
#include "proto/coordinator.pb.h"

namespace holdfast {
namespace {

// When a wait is first reported, and how often after that.
constexpr absl::Duration kFirstReport = absl::Seconds(2);
constexpr absl::Duration kReportEvery = absl::Seconds(10);
// How long one attempt of Open may take, so that Open soon learns what keeps
// the coordinator from answering; and how long the coordinator may be silent
// before Open diagnoses the connection.
constexpr absl::Duration kLookEvery = absl::Seconds(1);
// How long a session that ends waits for the spans of a trace to go out.
constexpr absl::Duration kTracePatience = absl::Seconds(1);
// The minimum time of an attempt, even if patience is about to end.
constexpr absl::Duration kMinAttempt = absl::Milliseconds(1);

using google::protobuf::util::MessageDifferencer;

bool Same(const Session::News& a, const Session::News& b) {
  return MessageDifferencer::Equals(a.sender, b.sender) &&
         MessageDifferencer::Equals(a.state, b.state) &&
         a.durable_step == b.durable_step && a.status == b.status;
}

// The known cause of a call's failure with `status`.
std::string CauseOf(const Diagnosis& diagnosis, const absl::Status& status) {
  if (!diagnosis.cause.empty()) return diagnosis.cause;
  // gRPC's own message says no more.
  if (absl::IsDeadlineExceeded(status)) return "no answer";
  return std::string(status.message());
}

// How long the coordinator may park a registration if one attempt may take
// `attempt`.
absl::Duration ParkFor(absl::Duration attempt) {
  return std::clamp(attempt / 2, absl::ZeroDuration(), kMaxRegisterPark);
}

// A digest may be any text, even one that a message cannot contain.
std::string DigestText(const std::string& digest) {
  return PrintableText(digest) == digest ? digest : EscapedText(digest);
}

}  // namespace

struct Session::Rpc {
  explicit Rpc(const Options& options)
      : queue(options.queue),
        stub(MakeChannel(options.coordinator, /*ps=*/0, ChannelKind::kControl,
                         options.credentials)) {}

  // One attempt at a method of the coordinator, which Cancel may cut short.
  template <typename Request, typename Response>
  absl::Status Call(const char* method, const Request& request,
                    absl::Time deadline, Response* response) {
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(deadline));
    // If the call failed at once, no thread would drive the connection, and
    // gRPC would find a coordinator that has just started only by its back-up
    // poll every 5 s.
    context.set_wait_for_ready(true);
    grpc::ByteBuffer bytes;
    HOLDFAST_RETURN_IF_ERROR(ToBytes(request, &bytes));
    {
      absl::MutexLock lock(&mutex);
      if (cancelled) return absl::CancelledError("the session is closed");
      under_way.insert(&context);
    }
    absl::Status status;
    absl::Notification done;
    queue->Start(&stub, absl::StrCat("/holdfast.proto.Coordinator/", method),
                 &context, bytes,
                 [&](const grpc::Status& answer, grpc::ByteBuffer* bytes) {
                   status = FromGrpcStatus(answer);
                   if (status.ok()) status = FromBytes(bytes, response);
                   done.Notify();
                 });
    done.WaitForNotification();  // at the deadline at the latest
    absl::MutexLock lock(&mutex);
    under_way.erase(&context);
    return status;
  }

  // Cancels the calls in progress, and refuses others until Permit.
  void Cancel() {
    absl::MutexLock lock(&mutex);
    cancelled = true;
    for (grpc::ClientContext* context : under_way) context->TryCancel();
  }
  void Permit() {
    absl::MutexLock lock(&mutex);
    cancelled = false;
  }

  CallQueue* const queue;
  grpc::GenericStub stub;
  absl::Mutex mutex;
  std::set<grpc::ClientContext*> under_way ABSL_GUARDED_BY(mutex);
  bool cancelled ABSL_GUARDED_BY(mutex) = false;
};

absl::StatusOr<std::unique_ptr<Session>> Session::Open(Options options) {
  if (options.nonce == 0) options.nonce = MakeNonce();
  auto rpc = std::make_unique<Rpc>(options);
  auto session =
      absl::WrapUnique(new Session(std::move(options), std::move(rpc)));
  HOLDFAST_RETURN_IF_ERROR(session->RegisterFirst());
  session->thread_ =
      std::thread([session = session.get()] { session->RenewUntilStopped(); });
  return session;
}

Session::Session(Options options, std::unique_ptr<Rpc> rpc)
    : options_(std::move(options)), rpc_(std::move(rpc)) {
  news_.sender.mutable_task()->set_job(options_.task.job);
  news_.sender.mutable_task()->set_index(options_.task.index);
  news_.state.set_phase(proto::STARTING);
  if (options_.tracer == nullptr) return;
  TraceReporter::Options trace;
  trace.tracer = options_.tracer;
  trace.clock = &clock_;
  trace.call = [rpc = rpc_.get()](const proto::ReportTraceRequest& request,
                                  absl::Time deadline,
                                  proto::ReportTraceResponse* response) {
    return rpc->Call("ReportTrace", request, deadline, response);
  };
  trace.sender = [this] { return sender(); };
  trace_ = std::make_unique<TraceReporter>(std::move(trace));
}

Session::~Session() {
  SendTrace(kTracePatience);
  StopRenewing();
  // The TraceReporter's calls were cancelled with those of the session.
  trace_.reset();
}

Session::News Session::news() const {
  absl::MutexLock lock(&mutex_);
  return news_;
}

std::string Session::CoordinatorName() const {
  return absl::StrCat(TaskId{kPsJob, 0}.ToString(), " at ",
                      options_.coordinator);
}

absl::Status Session::FromCoordinator(const absl::Status& status) const {
  return absl::Status(status.code(),
                      absl::StrCat(CoordinatorName(), ": ", status.message()));
}

bool Session::Sleep(absl::Duration duration) {
  absl::MutexLock lock(&mutex_);
  return !mutex_.AwaitWithTimeout(absl::Condition(&stopping_), duration);
}

void Session::ReportWait(absl::string_view text, absl::Time* report) const {
  if (options_.on_waiting == nullptr || SteadyNow() < *report) return;
  options_.on_waiting(absl::StrCat(CoordinatorName(), ": ", text));
  *report = SteadyNow() + kReportEvery;
}

absl::Status Session::RegisterFirst() {
  absl::Time heard = SteadyNow();
  absl::Time report = heard + kFirstReport;
  Diagnoser diagnoser(options_.coordinator, /*ps=*/0, options_.credentials);
  Backoff backoff;
  absl::InsecureBitGen random;
  for (;;) {
    const absl::Time begun = SteadyNow();
    const absl::Time end =
        std::min({options_.deadline, begun + options_.attempt_timeout,
                  begun + kLookEvery});
    std::string waiting_for;
    const absl::StatusOr<bool> admitted = Register(end, &waiting_for);
    if (admitted.ok() && *admitted) return absl::OkStatus();
    absl::Status status = admitted.status();
    if (status.ok()) {
      heard = SteadyNow();
      status = absl::UnavailableError(
          absl::StrCat("it is waiting for ", waiting_for));
    } else if (IsTransient(status)) {
      Diagnosis diagnosis;
      if (SteadyNow() - heard >= kLookEvery) diagnosis = diagnoser.Look();
      if (diagnosis.kind == Diagnosis::Kind::kMistake) {
        return diagnosis.ToStatus(CoordinatorName());
      }
      status = absl::UnavailableError(CauseOf(diagnosis, status));
    } else {
      return WhyRefused(status);
    }
    const absl::Status named = FromCoordinator(status);
    absl::Duration pause = backoff.Next(random);
    if (admitted.ok() && SteadyNow() - begun >= ParkFor(end - begun) / 2) {
      pause = absl::ZeroDuration();
      backoff.Reset();
    }
    if (SteadyNow() + pause >= options_.deadline) return named;
    if (options_.give_up && options_.give_up()) {
      return absl::CancelledError(named.message());
    }
    ReportWait(status.message(), &report);
    Sleep(pause);
  }
}

absl::StatusOr<bool> Session::Register(absl::Time deadline,
                                       std::string* waiting_for) {
  proto::RegisterRequest request;
  request.set_wait_ms(
      absl::ToInt64Milliseconds(ParkFor(deadline - SteadyNow())));
  *request.mutable_sender() = sender();
  request.mutable_sender()->clear_incarnation();
  request.set_nonce(options_.nonce);
  request.set_protocol_version(kProtocolVersion);
  request.set_address(options_.address);
  request.set_process(PrintableText(ProcessName()));
  request.set_job_digest(options_.job_digest);
  request.set_data_digest(DigestText(options_.data_digest));
  request.set_num_ps(options_.num_ps);
  request.set_num_workers(options_.num_workers);
  request.set_memory_limit_bytes(options_.memory_limit_bytes);
  const absl::Time begun = SteadyNow();
  request.set_waited_ms(
      absl::ToInt64Milliseconds(begun - waits_since_.value_or(begun)));
  proto::RegisterResponse response;
  HOLDFAST_RETURN_IF_ERROR(
      rpc_->Call("Register", request, deadline, &response));
  if (response.incarnation() == 0) {
    if (!waits_since_.has_value()) waits_since_ = begun;
    *waiting_for = response.waiting_for();
    return false;
  }
  waits_since_.reset();
  lease_ = absl::Milliseconds(std::max<uint64_t>(response.lease_ms(), 1));
  SetLogGeneration(response.generation());
  Hear([&](News* news) {
    news->sender.set_incarnation(response.incarnation());
    news->sender.set_generation(response.generation());
  });
  return true;
}

absl::Status Session::WhyRefused(const absl::Status& refusal) {
  if (absl::IsFailedPrecondition(refusal) || absl::IsUnimplemented(refusal)) {
    const Diagnosis diagnosis =
        Diagnose(options_.coordinator, /*ps=*/0, options_.credentials,
                 kLookPatience, /*cancelled=*/nullptr);
    if (diagnosis.kind == Diagnosis::Kind::kMistake) {
      return diagnosis.ToStatus(CoordinatorName());
    }
  }
  const absl::Status named = FromCoordinator(refusal);
  return absl::Status(
      named.code(), absl::StrCat(named.message(), DescribeDifference(refusal)));
}

std::string Session::DescribeDifference(const absl::Status& why) {
  if (!absl::IsFailedPrecondition(why) || !options_.declaration.has_value()) {
    return "";
  }
  proto::DeclareRequest request;
  *request.mutable_sender() = sender();
  *request.mutable_declaration() = *options_.declaration;
  proto::DeclareResponse response;
  const absl::Status compared = rpc_->Call(
      "Declare", request,
      std::min(options_.deadline, SteadyNow() + options_.attempt_timeout),
      &response);
  if (compared.ok()) {
    return ". The declarations are the same; the difference is in fields that "
           "only workers know, such as batch_size";
  }
  if (!absl::IsAlreadyExists(compared)) return "";
  return absl::StrCat(". ", compared.message());
}

absl::Status Session::Renew(absl::Duration wait, absl::Time deadline,
                            bool* trace_changes) {
  proto::RenewLeaseRequest request;
  {
    absl::MutexLock lock(&mutex_);
    *request.mutable_sender() = news_.sender;
    request.set_known_phase(news_.state.phase());
  }
  request.set_wait_ms(absl::ToInt64Milliseconds(wait));
  if (options_.report) {
    TaskReport told = options_.report();
    if (told.input_wait) *request.mutable_input_wait() = *told.input_wait;
    if (told.worker) *request.mutable_worker() = *std::move(told.worker);
    if (told.ps) *request.mutable_ps() = *std::move(told.ps);
  }
  if (trace_ != nullptr) request.set_recording(trace_->recording());
  proto::RenewLeaseResponse response;
  const absl::Status status =
      rpc_->Call("RenewLease", request, deadline, &response);
  if (!status.ok()) return status;
  SetLogGeneration(response.generation());
  *trace_changes = trace_ != nullptr && trace_->Hear(response);
  const proto::JobPhase phase = response.state().phase();
  Hear([&](News* news) {
    news->sender.set_generation(response.generation());
    news->durable_step = response.durable_step();
    if (phase != proto::JOB_PHASE_UNSPECIFIED) news->state = response.state();
    if (phase == proto::FAILED) {
      news->status = absl::AbortedError(response.state().reason());
    }
  });
  return absl::OkStatus();
}

absl::Duration Session::Patience() const {
  absl::Duration patience = options_.patience;
  if (options_.job_patience) {
    patience = options_.job_patience().value_or(patience);
  }
  return patience > absl::ZeroDuration() ? patience : lease_;
}

void Session::RenewUntilStopped() {
  // Whether the coordinator knows this session, as far as this side can tell.
  bool known = true;
  // How long the coordinator has not answered. Time for which this process was
  // suspended does not count.
  absl::Duration silent;
  absl::Time report = absl::InfiniteFuture();
  Diagnoser diagnoser(options_.coordinator, /*ps=*/0, options_.credentials);
  Backoff backoff;
  absl::InsecureBitGen random;
  for (absl::Duration pause; Sleep(pause);) {
    // A lost message is repeated within the lease, which the coordinator counts
    // from the arrival of the message.
    const absl::Duration patience = Patience();
    const absl::Duration attempt =
        std::min(lease_ * 2 / 3, std::max(patience - silent, kMinAttempt));
    const absl::Duration wait =
        known ? std::min(attempt / 2, kMaxPark) : ParkFor(attempt);
    const News before = news();
    const absl::Time begun = SteadyNow();
    const bool renews = known;
    bool trace_changes = false;
    absl::Status status;
    if (renews) {
      status = Renew(wait, begun + attempt, &trace_changes);
    } else {
      std::string waiting_for;
      const absl::StatusOr<bool> admitted =
          Register(begun + attempt, &waiting_for);
      status = admitted.status();
      known = admitted.ok() && *admitted;
    }
    const absl::Duration took = SteadyNow() - begun;
    pause = backoff.Next(random);
    if (status.ok()) {
      if (!this->status().ok()) return;
      if (silent > absl::ZeroDuration()) diagnoser.Forget();
      silent = absl::ZeroDuration();
      // Pause after an answer that came early for no reason, so as not to ask
      // in a busy loop.
      if (took >= wait / 2 || trace_changes || !Same(before, news())) {
        pause = absl::ZeroDuration();
        if (renews) backoff.Reset();
      }
    } else if (known && absl::IsNotFound(status)) {
      silent = absl::ZeroDuration();
      known = false;
    } else if (!IsTransient(status)) {
      return End(absl::AbortedError(absl::StrCat(
          CoordinatorName(), " has ended this session: ", status.message())));
    } else {
      if (silent == absl::ZeroDuration()) report = begun + kFirstReport;
      silent += std::min(took, attempt) + pause;
      // The diagnosis that is started here is available when the next attempt,
      // which waits for a connection, has failed too.
      const std::string cause = CauseOf(diagnoser.Look(), status);
      if (silent >= patience) {
        return End(absl::UnavailableError(
            absl::StrCat(CoordinatorName(), ": no answer for ",
                         absl::FormatDuration(patience), " (", cause, ")")));
      }
      ReportWait(cause, &report);
    }
  }
}

void Session::Hear(absl::FunctionRef<void(News* news)> change) {
  News told;
  {
    absl::MutexLock lock(&mutex_);
    told = news_;
    change(&told);
    if (Same(told, news_)) return;
    news_ = told;
  }
  if (options_.on_change) options_.on_change(told);
}

void Session::End(const absl::Status& why) {
  {
    absl::MutexLock lock(&mutex_);
    // A coordinator may exit once the job has ended in an orderly way.
    if (stopping_ || IsOrderlyEnd(news_.state.phase())) return;
  }
  Hear([&](News* news) { news->status = why; });
}

void Session::StopRenewing() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  rpc_->Cancel();
  if (thread_.joinable()) thread_.join();
}

void Session::SendTrace(absl::Duration patience) {
  if (trace_ == nullptr) return;
  const News last = news();
  // An unreachable coordinator receives nothing.
  if (!last.status.ok()) return;
  trace_->AwaitSent(SteadyNow() + patience,
                    /*ending=*/last.state.phase() == proto::DONE);
}

absl::Status Session::Close(const std::string& error, absl::Time deadline) {
  proto::LeaveRequest request;
  request.set_error(error);
  return Leave(std::move(request), deadline);
}

absl::Status Session::CloseEarly(bool program_ended, absl::Time deadline) {
  proto::LeaveRequest request;
  request.set_program_ended(program_ended);
  request.set_stepped_down(!program_ended);
  return Leave(std::move(request), deadline);
}

absl::Status Session::Leave(proto::LeaveRequest request, absl::Time deadline) {
  absl::MutexLock closing(&closing_);
  if (left_) return absl::OkStatus();
  SendTrace(std::min(kTracePatience, deadline - SteadyNow()));
  StopRenewing();
  // A coordinator that was silent for so long will not receive the Leave
  // either.
  if (absl::IsUnavailable(status())) return status();
  rpc_->Permit();

  *request.mutable_sender() = sender();
  request.set_error(PrintableLines(request.error()));
  Backoff backoff;
  absl::InsecureBitGen random;
  for (bool repeated = false;; repeated = true) {
    proto::LeaveResponse response;
    const absl::Status status = rpc_->Call(
        "Leave", request,
        std::min(deadline, SteadyNow() + options_.attempt_timeout), &response);
    if (status.ok() || (repeated && absl::IsNotFound(status))) {
      // NOT_FOUND: the answer to an earlier attempt was lost.
      left_ = true;
      absl::MutexLock lock(&mutex_);
      if (response.state().phase() != proto::JOB_PHASE_UNSPECIFIED) {
        news_.state = response.state();
      }
      return absl::OkStatus();
    }
    if (!IsTransient(status)) return FromCoordinator(status);
    const absl::Time again = SteadyNow() + backoff.Next(random);
    if (again >= deadline) return FromCoordinator(status);
    absl::SleepFor(again - SteadyNow());
  }
}

}  // namespace holdfast
