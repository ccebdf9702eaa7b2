// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_RPC_TRACE_REPORTER_H_
#define HOLDFAST_COMMON_RPC_TRACE_REPORTER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/trace/trace.h"
#include "common/trace/trace_parts.h"
#include "proto/cluster.pb.h"
#include "proto/coordinator.pb.h"
#include "proto/trace.pb.h"

namespace holdfast {

// Compares `clock` with another clock: calls `ask` `times` times for the other
// clock's time, and uses the answer with the shortest round trip. The other
// clock was read at some moment between question and answer, so the error is at
// most half of that round trip.
// Errors: the error of the last question, when none was answered.
absl::StatusOr<ClockReading> CompareClocks(
    const Clock& clock, int times,
    absl::FunctionRef<absl::StatusOr<absl::Time>()> ask);

// A reading whose error includes both `a` and `b`, and so holds at their times
// and, if the clocks drift apart evenly, in between.
ClockReading Span(const ClockReading& a, const ClockReading& b);

// A task's part in traces of the whole cluster (docs/operating/tracing.md):
// records when the answers to its lease renewals say so, compares its clock
// with that of ps 0, and sends what it has recorded.
//
// From the first trace on it has a thread, which waits between traces.
//
// Thread-safe.
class TraceReporter {
 public:
  struct Options {
    // Records on demand. Must outlive the reporter.
    Tracer* tracer = nullptr;
    // The tracer's clock. Must outlive the reporter.
    const Clock* clock = nullptr;
    // Makes one attempt at ReportTrace. Called by the reporter's thread, until
    // the reporter is destroyed.
    std::function<absl::Status(const proto::ReportTraceRequest& request,
                               absl::Time deadline,
                               proto::ReportTraceResponse* response)>
        call;
    // Returns the task, in its newest life.
    std::function<proto::Sender()> sender;
    // How long after the last traced step to wait for spans that began within
    // the step, such as a pull of the version that it made. With a longer wait,
    // more of these spans are collected, but they are sent later.
    absl::Duration linger = absl::Milliseconds(500);
    // How long one attempt to send may take, and how long all attempts
    // together.
    absl::Duration attempt_timeout = absl::Seconds(5);
    absl::Duration send_timeout = absl::Seconds(15);
    // How many times ps 0 is asked for the time, before a recording and again
    // after it.
    int questions = 10;
  };

  explicit TraceReporter(Options options);
  // Abandons what is in progress. The owner must make pending calls return.
  ~TraceReporter();

  TraceReporter(const TraceReporter&) = delete;
  TraceReporter& operator=(const TraceReporter&) = delete;

  // Follows the trace order in `response`. Returns whether the order differs
  // from the last one.
  bool Hear(const proto::RenewLeaseResponse& response)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // The number of the trace for which the task is recording, to be sent in the
  // next renewal; 0 if it is not recording.
  uint64_t recording() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Waits until the recording of a finished trace is sent, or until the
  // deadline. Must be called when the task is about to leave. If `ending`, also
  // waits until a running trace is over, as it is when the job ends.
  void AwaitSent(absl::Time deadline, bool ending) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<ClockReading> Compare();
  // Waits until the recording is complete, and returns it; nullopt if it is no
  // longer wanted.
  std::optional<Tracer::Recorded> TakeRecorded(const proto::TraceOrder& order,
                                               const ClockReading& clock)
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Send(uint64_t trace, const std::vector<proto::TracePart>& parts)
      ABSL_LOCKS_EXCLUDED(mutex_);
  bool stopping() const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return stopping_;
  }

  const Options options_;

  mutable absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool leaving_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t recording_ ABSL_GUARDED_BY(mutex_) = 0;
  // Whether the clocks must be compared, because a recording begins.
  bool compare_ ABSL_GUARDED_BY(mutex_) = false;
  // The order whose recording is to be sent; absent once it is sent.
  std::optional<proto::TraceOrder> to_send_ ABSL_GUARDED_BY(mutex_);

  // The comparison of clocks at the beginning of the recording. Used only by
  // the thread.
  std::optional<ClockReading> at_begin_;
  // Set under mutex_ by the first trace.
  std::thread thread_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_RPC_TRACE_REPORTER_H_
