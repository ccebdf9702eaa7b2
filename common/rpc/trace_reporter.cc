// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/trace_reporter.h"

#include <pthread.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/random/random.h"
#include "common/base/status_macros.h"
#include "common/rpc/backoff.h"
#include "glog/logging.h"

namespace holdfast {
namespace {

// A question for the time that takes longer is not precise enough.
constexpr absl::Duration kQuestionTimeout = absl::Seconds(1);

}  // namespace

absl::StatusOr<ClockReading> CompareClocks(
    const Clock& clock, int times,
    absl::FunctionRef<absl::StatusOr<absl::Time>()> ask) {
  absl::StatusOr<ClockReading> best =
      absl::UnknownError("no question was asked");
  for (int i = 0; i < times; ++i) {
    const absl::Time asked = clock.Now();
    const absl::StatusOr<absl::Time> other = ask();
    const absl::Time answered = clock.Now();
    if (!other.ok()) {
      if (!best.ok()) best = other.status();
      continue;
    }
    const absl::Duration error = (answered - asked) / 2;
    if (best.ok() && best->error <= error) continue;
    best = ClockReading{*other - (asked + error), error};
  }
  return best;
}

ClockReading Span(const ClockReading& a, const ClockReading& b) {
  const absl::Duration low = std::min(a.offset - a.error, b.offset - b.error);
  const absl::Duration high = std::max(a.offset + a.error, b.offset + b.error);
  const absl::Duration error = (high - low) / 2;
  return {low + error, error};
}

TraceReporter::TraceReporter(Options options) : options_(std::move(options)) {}

TraceReporter::~TraceReporter() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

bool TraceReporter::Hear(const proto::RenewLeaseResponse& response) {
  absl::MutexLock lock(&mutex_);
  const proto::TraceOrder& order = response.trace();
  const uint64_t wanted = order.over() ? 0 : order.trace();
  if (wanted == recording_) return false;
  if (wanted != 0) {
    options_.tracer->Begin();
    compare_ = true;
    to_send_.reset();
    if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
  } else if (order.trace() == recording_) {
    to_send_ = order;
  } else {
    // The recording is no longer wanted.
    options_.tracer->End(absl::InfiniteFuture(), absl::InfinitePast());
  }
  recording_ = wanted;
  return true;
}

uint64_t TraceReporter::recording() const {
  absl::MutexLock lock(&mutex_);
  return recording_;
}

void TraceReporter::AwaitSent(absl::Time deadline, bool ending) {
  absl::MutexLock lock(&mutex_);
  leaving_ = true;
  const auto sent = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return !to_send_.has_value() && !(ending && recording_ != 0);
  };
  mutex_.AwaitWithTimeout(absl::Condition(&sent), deadline - SteadyNow());
}

void TraceReporter::Run() {
  pthread_setname_np(pthread_self(), "trace");
  const auto called = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return stopping_ || compare_ || to_send_.has_value();
  };
  for (;;) {
    std::optional<proto::TraceOrder> order;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(&called));
      if (stopping_) return;
      if (compare_) {
        at_begin_.reset();
      } else {
        order = to_send_;
      }
      compare_ = false;
    }
    const absl::StatusOr<ClockReading> now = Compare();
    if (!order.has_value()) {
      if (now.ok()) at_begin_ = *now;
      continue;
    }
    absl::Status status = now.status();
    if (status.ok()) {
      const ClockReading clock =
          at_begin_.has_value() ? Span(*at_begin_, *now) : *now;
      const auto recorded = TakeRecorded(*order, clock);
      if (!recorded.has_value()) continue;
      status = Send(order->trace(), ToTraceParts(recorded->tracks, clock,
                                                 recorded->complete_from));
    }
    LOG_IF(WARNING, !status.ok())
        << "failed to send this task's recording for a trace of the cluster: "
        << status.message();
    absl::MutexLock lock(&mutex_);
    if (to_send_.has_value() && to_send_->trace() == order->trace()) {
      to_send_.reset();
    }
  }
}

absl::StatusOr<ClockReading> TraceReporter::Compare() {
  proto::ReportTraceRequest request;
  *request.mutable_sender() = options_.sender();
  return CompareClocks(
      *options_.clock, options_.questions, [&]() -> absl::StatusOr<absl::Time> {
        proto::ReportTraceResponse response;
        HOLDFAST_RETURN_IF_ERROR(
            options_.call(request, SteadyNow() + kQuestionTimeout, &response));
        return FromTraceNanos(response.time_ns());
      });
}

std::optional<Tracer::Recorded> TraceReporter::TakeRecorded(
    const proto::TraceOrder& order, const ClockReading& clock) {
  const absl::Time from = FromTraceNanos(order.begin_ns()) - clock.offset;
  const absl::Time until = FromTraceNanos(order.end_ns()) - clock.offset;
  const auto wanted = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return to_send_.has_value() && to_send_->trace() == order.trace();
  };
  const auto hurried = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return stopping_ || leaving_ || !wanted();
  };
  absl::MutexLock lock(&mutex_);
  mutex_.AwaitWithTimeout(absl::Condition(&hurried), options_.linger);
  if (stopping_ || !wanted()) return std::nullopt;
  return options_.tracer->End(from, until);
}

absl::Status TraceReporter::Send(uint64_t trace,
                                 const std::vector<proto::TracePart>& parts) {
  const absl::Time deadline = SteadyNow() + options_.send_timeout;
  absl::InsecureBitGen random;
  for (const proto::TracePart& part : parts) {
    proto::ReportTraceRequest request;
    *request.mutable_sender() = options_.sender();
    *request.mutable_part() = part;
    request.set_trace(trace);
    Backoff backoff;
    for (;;) {
      proto::ReportTraceResponse response;
      const absl::Status status = options_.call(
          request, std::min(deadline, SteadyNow() + options_.attempt_timeout),
          &response);
      if (status.ok()) break;
      const absl::Duration pause = backoff.Next(random);
      if (!IsTransient(status) || SteadyNow() + pause >= deadline) {
        return status;
      }
      absl::MutexLock lock(&mutex_);
      mutex_.AwaitWithTimeout(absl::Condition(&stopping_), pause);
      if (stopping_) return absl::OkStatus();
    }
  }
  return absl::OkStatus();
}

}  // namespace holdfast
