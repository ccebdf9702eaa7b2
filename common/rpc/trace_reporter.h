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

// How `clock` and another one compare, by asking the other the time so many
// times, and believing the answer that took the shortest: the other clock was
// read at some moment between question and answer, so it is off by half of that
// time at most.
// Errors: of the last question, when no question was answered.
absl::StatusOr<ClockReading> CompareClocks(
    const Clock& clock, int times,
    absl::FunctionRef<absl::StatusOr<absl::Time>()> ask);

// What holds at both times and, where the clocks drift apart evenly, between
// them.
ClockReading Span(const ClockReading& a, const ClockReading& b);

// A task's part in traces of the whole cluster (docs/operating/tracing.md):
// records when the answers to the renewals of its lease say so, finds out how
// its clock compares with that of ps 0, and sends what it has recorded.
//
// It has a thread from the first trace on, which waits where there is none.
//
// Thread-safe.
class TraceReporter {
 public:
  struct Options {
    // Records on demand. Must outlive the reporter.
    Tracer* tracer = nullptr;
    // Of the tracer. Must outlive the reporter.
    const Clock* clock = nullptr;
    // Makes one attempt at ReportTrace. May be called by the reporter's thread
    // until that is destroyed.
    std::function<absl::Status(const proto::ReportTraceRequest& request,
                               absl::Time deadline,
                               proto::ReportTraceResponse* response)>
        call;
    // Who the task is, in its newest life.
    std::function<proto::Sender()> sender;
    // For how long after the last step spans are waited for that began within
    // it, as a pull of the version that it made. A longer one has more of them,
    // later.
    absl::Duration linger = absl::Milliseconds(500);
    // How long one attempt may take, and all of them.
    absl::Duration attempt_timeout = absl::Seconds(5);
    absl::Duration send_timeout = absl::Seconds(15);
    // Questions for the time, before and after.
    int questions = 10;
  };

  explicit TraceReporter(Options options);
  // Gives up what is under way. Whoever makes the calls must have them return.
  ~TraceReporter();

  TraceReporter(const TraceReporter&) = delete;
  TraceReporter& operator=(const TraceReporter&) = delete;

  // Does what an answer says. Returns whether that is something else than
  // before.
  bool Hear(const proto::RenewLeaseResponse& response)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // For which trace it records, for the next renewal; 0: for none.
  uint64_t recording() const ABSL_LOCKS_EXCLUDED(mutex_);

  // The task is about to leave: waits until what it has recorded for a trace
  // that is over is sent, or the deadline. `ending`: also for the word that a
  // trace is over, which comes with the end of the job.
  void AwaitSent(absl::Time deadline, bool ending) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<ClockReading> Compare();
  // What was recorded, once it is all there; nothing when it is not wanted any
  // more.
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
  // The clocks are to be compared at the beginning of a recording.
  bool compare_ ABSL_GUARDED_BY(mutex_) = false;
  // Until it is sent.
  std::optional<proto::TraceOrder> to_send_ ABSL_GUARDED_BY(mutex_);

  // The thread's own.
  std::optional<ClockReading> at_begin_;
  // Set under mutex_, with the first trace.
  std::thread thread_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_RPC_TRACE_REPORTER_H_
