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

// Compares `clock` with another clock: asks the other for the time `times`
// times, and uses the answer with the shortest round trip. The other clock was
// read at some moment between question and answer, so the error is at most half
// of that round trip.
// Errors: the error of the last question, when none was answered.
absl::StatusOr<ClockReading> CompareClocks(
    const Clock& clock, int times,
    absl::FunctionRef<absl::StatusOr<absl::Time>()> ask);

// A reading that holds at the times of both `a` and `b` and, if the clocks
// drift apart evenly, in between.
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
    // How long after the last step to wait for spans that began within it, such
    // as a pull of the version that it made. A longer wait collects more of
    // them, but sends them later.
    absl::Duration linger = absl::Milliseconds(500);
    // How long one attempt to send may take, and all attempts together.
    absl::Duration attempt_timeout = absl::Seconds(5);
    absl::Duration send_timeout = absl::Seconds(15);
    // How often ps 0 is asked for the time, before a recording and again after
    // it.
    int questions = 10;
  };

  explicit TraceReporter(Options options);
  // Abandons what is in progress. The owner must make pending calls return.
  ~TraceReporter();

  TraceReporter(const TraceReporter&) = delete;
  TraceReporter& operator=(const TraceReporter&) = delete;

  // Follows the trace order of an answer. Returns whether it differs from the
  // last one.
  bool Hear(const proto::RenewLeaseResponse& response)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // The trace that it records for, to be sent in the next renewal; 0 for none.
  uint64_t recording() const ABSL_LOCKS_EXCLUDED(mutex_);

  // To be called when the task is about to leave: waits until the recording of
  // a finished trace is sent, or until the deadline. With `ending`, also waits
  // to hear that a running trace is over, which comes with the end of the job.
  void AwaitSent(absl::Time deadline, bool ending) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<ClockReading> Compare();
  // What was recorded, once it is complete; nullopt when it is no longer
  // wanted.
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
  // The clocks must be compared, at the beginning of a recording.
  bool compare_ ABSL_GUARDED_BY(mutex_) = false;
  // Set until the recording is sent.
  std::optional<proto::TraceOrder> to_send_ ABSL_GUARDED_BY(mutex_);

  // Owned by the thread.
  std::optional<ClockReading> at_begin_;
  // Set under mutex_ by the first trace.
  std::thread thread_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_RPC_TRACE_REPORTER_H_
