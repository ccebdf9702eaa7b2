#include "common/rpc/session.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <algorithm>
#include <random>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/process_name.h"
#include "common/rpc/backoff.h"
#include "common/rpc/channel.h"
#include "common/rpc/status.h"
#include "common/rpc_limits.h"
#include "proto/coordinator.grpc.pb.h"

namespace holdfast {
namespace {

// When Open first says what it waits for, and how often after that.
constexpr absl::Duration kFirstReport = absl::Seconds(2);
constexpr absl::Duration kReportEvery = absl::Seconds(1);

uint64_t MakeNonce() {
  std::random_device random;
  const uint64_t high = random();
  return high << 32 | random() | 1;  // never 0
}

}  // namespace

struct Session::Rpc {
  using Stub = proto::Coordinator::Stub;

  explicit Rpc(const std::string& address)
      : stub(proto::Coordinator::NewStub(
            MakeChannel(address, ChannelKind::kControl))) {}

  // One attempt, which Cancel may cut short.
  template <typename Request, typename Response>
  absl::Status Call(grpc::Status (Stub::*method)(grpc::ClientContext*,
                                                 const Request&, Response*),
                    const Request& request, absl::Time deadline,
                    Response* response) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(deadline));
    // A call that fails at once leaves nobody to drive the connection: gRPC
    // would then find a coordinator that has just started only by its 5 s
    // back-up poll.
    context.set_wait_for_ready(true);
    {
      absl::MutexLock lock(&mutex);
      if (cancelled) return absl::CancelledError("the session is closed");
      current = &context;
    }
    const absl::Status status =
        FromGrpcStatus((stub.get()->*method)(&context, request, response));
    absl::MutexLock lock(&mutex);
    current = nullptr;
    return status;
  }

  // Ends the call in progress, and refuses calls until Permit.
  void Cancel() {
    absl::MutexLock lock(&mutex);
    cancelled = true;
    if (current != nullptr) current->TryCancel();
  }
  void Permit() {
    absl::MutexLock lock(&mutex);
    cancelled = false;
  }

  const std::unique_ptr<Stub> stub;
  absl::Mutex mutex;
  grpc::ClientContext* current ABSL_GUARDED_BY(mutex) = nullptr;
  bool cancelled ABSL_GUARDED_BY(mutex) = false;
};

absl::StatusOr<std::unique_ptr<Session>> Session::Open(Options options) {
  auto rpc = std::make_unique<Rpc>(options.coordinator);
  auto session =
      absl::WrapUnique(new Session(std::move(options), std::move(rpc)));
  if (absl::Status status = session->Register(); !status.ok()) return status;
  session->thread_ =
      std::thread([session = session.get()] { session->RenewUntilStopped(); });
  return session;
}

Session::Session(Options options, std::unique_ptr<Rpc> rpc)
    : options_(std::move(options)), rpc_(std::move(rpc)) {
  sender_.mutable_task()->set_job(options_.task.job);
  sender_.mutable_task()->set_index(options_.task.index);
  state_.set_phase(proto::STARTING);
}

Session::~Session() { StopRenewing(); }

proto::Sender Session::sender() const {
  absl::MutexLock lock(&mutex_);
  return sender_;
}

proto::JobState Session::state() const {
  absl::MutexLock lock(&mutex_);
  return state_;
}

absl::Status Session::status() const {
  absl::MutexLock lock(&mutex_);
  return status_;
}

std::string Session::CoordinatorName() const {
  return absl::StrCat(TaskId{kPsJob, 0}.ToString(), " at ",
                      options_.coordinator);
}

absl::Status Session::FromCoordinator(const absl::Status& status) const {
  return absl::Status(status.code(),
                      absl::StrCat(CoordinatorName(), ": ", status.message()));
}

bool Session::SleepUntil(absl::Time when) {
  absl::MutexLock lock(&mutex_);
  return !mutex_.AwaitWithDeadline(absl::Condition(&stopping_), when);
}

absl::Status Session::Register() {
  proto::RegisterRequest request;
  *request.mutable_sender() = sender();
  request.set_nonce(MakeNonce());
  request.set_protocol_version(kProtocolVersion);
  request.set_address(options_.address);
  request.set_process(ProcessName());
  request.set_job_digest(options_.job_digest);
  request.set_data_digest(options_.data_digest);
  request.set_num_ps(options_.num_ps);
  request.set_num_workers(options_.num_workers);
  request.set_memory_limit_bytes(options_.memory_limit_bytes);

  absl::Time report = absl::Now() + kFirstReport;
  Backoff backoff;
  for (;;) {
    proto::RegisterResponse response;
    const absl::Status status = rpc_->Call(
        &Rpc::Stub::Register, request,
        std::min({options_.deadline, absl::Now() + options_.attempt_timeout,
                  std::max(report, absl::Now() + kReportEvery)}),
        &response);
    if (status.ok()) {
      absl::MutexLock lock(&mutex_);
      sender_.set_incarnation(response.incarnation());
      sender_.set_generation(response.generation());
      lease_ = absl::Milliseconds(std::max<uint64_t>(response.lease_ms(), 1));
      return absl::OkStatus();
    }
    const absl::Status named = FromCoordinator(status);
    if (!IsTransient(status)) return named;
    const absl::Time again = absl::Now() + backoff.Next();
    if (again >= options_.deadline) return named;
    if (options_.on_waiting && absl::Now() >= report) {
      options_.on_waiting(std::string(named.message()));
      report = absl::Now() + kReportEvery;
    }
    SleepUntil(again);
  }
}

void Session::RenewUntilStopped() {
  absl::Time heard = absl::Now();
  while (SleepUntil(heard + lease_ / 3)) {
    // The coordinator counts from when the message arrives, so not earlier.
    const absl::Time sent = absl::Now();
    const absl::Status status = Renew(heard);
    if (!status.ok()) return End(status);
    heard = sent;
  }
}

absl::Status Session::Renew(absl::Time heard) {
  // A process that was suspended for longer than the lease asks at least once
  // before it judges.
  const absl::Time deadline =
      std::max(heard + lease_, absl::Now() + lease_ / 3);
  proto::RenewLeaseRequest request;
  *request.mutable_sender() = sender();
  Backoff backoff;
  for (;;) {
    proto::RenewLeaseResponse response;
    const absl::Status status =
        rpc_->Call(&Rpc::Stub::RenewLease, request, deadline, &response);
    if (status.ok()) return Heard(response);
    if (!IsTransient(status)) {
      return absl::AbortedError(absl::StrCat(
          CoordinatorName(), " has ended this session: ", status.message()));
    }
    const absl::Time again = absl::Now() + backoff.Next();
    if (again >= deadline) {
      return absl::UnavailableError(absl::StrCat(
          CoordinatorName(), ": no answer for ", absl::FormatDuration(lease_),
          " (", status.message(), ")"));
    }
    if (!SleepUntil(again)) return absl::CancelledError("closed");
  }
}

absl::Status Session::Heard(const proto::RenewLeaseResponse& response) {
  const proto::JobPhase phase = response.state().phase();
  if (phase == proto::FAILED) {
    return absl::AbortedError(response.state().reason());
  }
  bool done = false;
  {
    absl::MutexLock lock(&mutex_);
    sender_.set_generation(response.generation());
    if (phase != proto::JOB_PHASE_UNSPECIFIED && phase != state_.phase()) {
      state_ = response.state();
      done = phase == proto::DONE;
    }
  }
  if (done && options_.on_change) {
    options_.on_change(response.state(), absl::OkStatus());
  }
  return absl::OkStatus();
}

void Session::End(const absl::Status& why) {
  proto::JobState state;
  {
    absl::MutexLock lock(&mutex_);
    // A coordinator that has gone once the job was DONE has failed nobody.
    if (stopping_ || state_.phase() == proto::DONE) return;
    status_ = why;
    state_.set_phase(proto::FAILED);
    state_.set_reason(std::string(why.message()));
    state = state_;
  }
  if (options_.on_change) options_.on_change(state, why);
}

void Session::StopRenewing() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  rpc_->Cancel();
  if (thread_.joinable()) thread_.join();
}

absl::Status Session::Close(const std::string& error, absl::Time deadline) {
  absl::MutexLock closing(&closing_);
  if (left_) return absl::OkStatus();
  StopRenewing();
  // Silent for a whole lease: it will not hear of this either.
  if (absl::IsUnavailable(status())) return status();
  rpc_->Permit();

  proto::LeaveRequest request;
  *request.mutable_sender() = sender();
  request.set_error(error);
  Backoff backoff;
  for (bool repeated = false;; repeated = true) {
    proto::LeaveResponse response;
    const absl::Status status = rpc_->Call(
        &Rpc::Stub::Leave, request,
        std::min(deadline, absl::Now() + options_.attempt_timeout), &response);
    if (status.ok() || (repeated && absl::IsNotFound(status))) {
      // NOT_FOUND: the answer to an earlier attempt was lost.
      left_ = true;
      absl::MutexLock lock(&mutex_);
      if (response.state().phase() != proto::JOB_PHASE_UNSPECIFIED) {
        state_ = response.state();
      }
      return absl::OkStatus();
    }
    if (!IsTransient(status)) return FromCoordinator(status);
    const absl::Time again = absl::Now() + backoff.Next();
    if (again >= deadline) return FromCoordinator(status);
    absl::SleepFor(again - absl::Now());
  }
}

}  // namespace holdfast
