#ifndef HOLDFAST_PS_SERVER_COORDINATOR_CLUSTER_TRACE_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_CLUSTER_TRACE_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/job/ids.h"
#include "common/job/task_id.h"
#include "common/trace/trace_span.h"
#include "proto/coordinator.pb.h"
#include "proto/trace.pb.h"
#include "ps_server/coordinator/job.h"
#include "ps_server/coordinator/step_timer.h"
#include "ps_server/protocol/push_id.h"

namespace holdfast {

// A trace of the whole cluster: which steps are recorded, and what tasks have
// recorded of them, for an operator to fetch (docs/operating/tracing.md).
//
//   kNone --(1)--> kArming --(2)--> kRecording --(3)--> kCollecting
//     ^               |                                  ^     |
//     |               +---------------(4)----------------+    (5)
//     |                                                        v
//     +----------------------------(6)--------------------- kComplete
//
//  1. An operator begins it. Every task is told to record with the next answer
//     to the renewal of its lease; those that are parked are answered at once.
//  2. A step begins when all live tasks record, or have had their time to say
//     so.
//  3. The last step is committed on every shard. Or what goes before it: the
//     job goes back, or ends, or the operator does not wait any longer.
//  4. The same, before a step began.
//  5. Every task that recorded has sent its spans, or is gone, or has had its
//     time.
//  6. From any state: the operator has all, or has not asked for kAbandoned.
//
// There is one at a time. Nothing that the job decides depends on it.
//
// Thread-compatible: part of the coordinator. Invariant: what it keeps of
// spans takes kMaxBytes at most.
class ClusterTrace final : public StepWatch {
 public:
  // A trace that nobody asks for is dropped.
  static constexpr absl::Duration kAbandoned = absl::Seconds(10);
  // Spans of all tasks together, as they cross the wire.
  static constexpr uint64_t kMaxBytes = uint64_t{64} << 20;
  // For tasks to send what they have recorded, beside a lease.
  static constexpr absl::Duration kToSend = absl::Seconds(5);

  explicit ClusterTrace(const Job* job) : job_(*job) {}

  // Errors of the following are those of the methods in
  // proto/coordinator.proto.
  absl::StatusOr<proto::TraceResponse> Answer(
      const proto::TraceRequest& request);
  // A part of a task's spans. The sender has a session.
  absl::Status Add(const proto::ReportTraceRequest& request);

  // A task renews its lease. Returns whether it does what is wanted of it.
  bool Hear(const proto::RenewLeaseRequest& request);
  // What tasks are told; absent while there is nothing to tell.
  std::optional<proto::TraceOrder> order() const;

  // The coordinator's own ps, which has no session: it records for that trace;
  // its spans.
  void OnOwnRecording(uint64_t trace) { own_recording_ = trace; }
  void AddOwn(std::vector<TraceTrack> tracks,
              std::optional<absl::Time> complete_from);

  // What the job had is lost.
  void OnGenerationOver();
  // Asynchronous jobs.
  void OnTicketSpent(uint64_t ticket, const WorkerLife& worker,
                     absl::Time granted, absl::Time now);
  // StepWatch:
  void OnStepOpened(GlobalStep step, absl::Time now) override;
  void OnStepClosed(GlobalStep step, absl::Time opened, absl::Time complete,
                    absl::Time now) override;
  void OnStepCommitted(GlobalStep step, absl::Time closed,
                       absl::Time now) override;

  // At the end of each event. Returns whether tasks are to be told something
  // else than before.
  bool Advance();

  // Whether somebody still asks for a trace.
  bool held() const { return state_ != proto::TraceResponse::NONE; }

 private:
  using State = proto::TraceResponse::State;

  // A task's part.
  struct Part {
    Incarnation incarnation;
    std::string process;
    // It does not know of traces.
    bool unable = false;
    bool recording = false;
    // An earlier life of the task had recorded, too, and its spans are lost.
    bool again = false;
    // It has sent all that it has.
    bool sent = false;
    // There was no room for all of it.
    bool cut = false;
    // proto::TracePart, serialized: a tenth of what they take otherwise.
    std::vector<std::string> pieces;
    uint64_t spans = 0;
    proto::TracePart first;  // without its spans
  };
  // The rows of the coordinator itself.
  enum OwnRow { kCollecting, kVerdict, kCommit, kTickets, kNumOwnRows };

  absl::StatusOr<proto::TraceResponse> Begin(
      const proto::TraceRequest& request);
  proto::TraceResponse Describe() const;
  absl::StatusOr<proto::TraceResponse> Fetch(
      const proto::TraceRequest& request) const;
  // Why the trace that is asked for is not here.
  absl::Status NotHere(uint64_t trace) const;
  std::string WaitingFor() const;
  // Of a task, once it should be here.
  std::string Missing(const TaskId& task, const Part& part) const;

  bool AllRecord() const;
  bool AllSent() const;
  // Whether the life that the part is of is still there.
  bool IsLive(const TaskId& task, const Part& part) const;
  // The first step begins.
  void Start(uint64_t step, absl::Time now);
  // No more is recorded. `why`: empty for a trace with all of its steps.
  void Close(const std::string& why);
  void Drop();
  void AddOwnSpan(OwnRow row, TraceSpan span);
  // Errors: RESOURCE_EXHAUSTED.
  absl::Status Keep(const proto::TracePart& piece, Part* part);
  Part& PartOf(const TaskId& task, Incarnation incarnation);

  const Job& job_;
  State state_ = proto::TraceResponse::NONE;
  // Since Advance has last said so.
  bool changed_ = false;
  uint64_t trace_ = 0;
  uint32_t steps_ = 0;
  uint64_t first_ = 0;
  uint64_t end_ = 0;
  // All record, or have had their time: the next step is the first.
  bool armed_ = false;
  // Of the state: until when others may take.
  absl::Time deadline_;
  absl::Time begin_time_;
  absl::Time end_time_;
  absl::Time asked_;
  std::string cut_short_;
  uint64_t own_recording_ = 0;
  std::map<TaskId, Part> parts_;
  uint64_t bytes_ = 0;
  struct OwnSpan {
    OwnRow row;
    TraceSpan span;
  };
  // The newest.
  std::deque<OwnSpan> own_;
  absl::Time own_dropped_until_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_CLUSTER_TRACE_H_
