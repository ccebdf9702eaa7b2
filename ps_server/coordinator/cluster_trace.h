// SPDX-License-Identifier: Apache-2.0
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

// A trace of the whole cluster: which steps are recorded, and the spans that
// tasks have recorded, for an operator to fetch (docs/operating/tracing.md).
//
//   kNone --(1)--> kArming --(2)--> kRecording --(3)--> kCollecting
//     ^               |                                  ^     |
//     |               +---------------(4)----------------+    (5)
//     |                                                        v
//     +----------------------------(6)--------------------- kComplete
//
//  1. An operator begins the trace. Every task is told to record in the next
//     answer to a renewal of its lease; parked renewals are answered at once.
//  2. A step begins once all live tasks record, or the time for them to confirm
//     has passed.
//  3. The last step is committed on every shard; or before that the job rolls
//     back, or ends, or the operator stops waiting.
//  4. The job rolls back, or ends, or the operator stops waiting, before a step
//     has begun.
//  5. Every task that recorded has sent its spans, or is gone, or has not sent
//     them in time (kToSend).
//  6. From any state: the operator has fetched everything, or has not asked
//     about the trace for kAbandoned.
//
// There is at most one trace at a time. No decision of the job depends on it.
//
// Thread-compatible: part of the coordinator. Invariant: the spans kept take at
// most kMaxBytes.
class ClusterTrace final : public StepWatch {
 public:
  // A trace that no operator has asked for during this time is dropped.
  static constexpr absl::Duration kAbandoned = absl::Seconds(10);
  // The limit on the spans of all tasks together, in their size on the wire.
  static constexpr uint64_t kMaxBytes = uint64_t{64} << 20;
  // How long tasks may take to send what they have recorded, in addition to the
  // duration of a lease.
  static constexpr absl::Duration kToSend = absl::Seconds(5);

  explicit ClusterTrace(const Job* job) : job_(*job) {}

  // The errors of the following methods are those of Trace and ReportTrace in
  // proto/coordinator.proto.
  absl::StatusOr<proto::TraceResponse> Answer(
      const proto::TraceRequest& request);
  // Adds a part of a task's spans. The sender must have a session.
  absl::Status Add(const proto::ReportTraceRequest& request);

  // Takes from a renewal of a task's lease which trace the task records.
  // Returns whether this is what the current order says.
  bool Hear(const proto::RenewLeaseRequest& request);
  // The order about the trace that tasks are given; absent if there is no
  // trace.
  std::optional<proto::TraceOrder> order() const;

  // The same for the coordinator's own ps, which has no session.
  // OnOwnRecording: the ps records for trace `trace`. AddOwn: adds the spans of
  // the ps.
  void OnOwnRecording(uint64_t trace) { own_recording_ = trace; }
  void AddOwn(std::vector<TraceTrack> tracks,
              std::optional<absl::Time> complete_from);

  // Called when the generation is over, because a shard or the coordinator has
  // lost its state.
  void OnGenerationOver();
  // Called in asynchronous jobs when a worker has spent a ticket, which was
  // granted at `granted`.
  void OnTicketSpent(uint64_t ticket, const WorkerLife& worker,
                     absl::Time granted, absl::Time now);
  // StepWatch:
  void OnStepOpened(GlobalStep step, absl::Time now) override;
  void OnStepClosed(GlobalStep step, absl::Time opened, absl::Time complete,
                    absl::Time now) override;
  void OnStepCommitted(GlobalStep step, absl::Time closed,
                       absl::Time now) override;

  // Called at the end of each event. Returns whether the order for tasks has
  // changed.
  bool Advance();

  // Whether there is a trace.
  bool held() const { return state_ != proto::TraceResponse::NONE; }

 private:
  using State = proto::TraceResponse::State;

  // A task's part of the trace.
  struct Part {
    Incarnation incarnation;
    std::string process;
    // The task's program does not support traces.
    bool unable = false;
    bool recording = false;
    // An earlier life of the task had recorded too. Its spans are lost.
    bool again = false;
    // The task has sent all its spans.
    bool sent = false;
    // There was no room for all of its spans.
    bool cut = false;
    // Serialized proto::TraceParts, which take a tenth of the memory of parsed
    // ones.
    std::vector<std::string> pieces;
    uint64_t spans = 0;
    proto::TracePart first;  // without its spans
  };
  // The tracks of the spans that the coordinator itself records.
  enum OwnRow { kCollecting, kVerdict, kCommit, kTickets, kNumOwnRows };

  absl::StatusOr<proto::TraceResponse> Begin(
      const proto::TraceRequest& request);
  proto::TraceResponse Describe() const;
  absl::StatusOr<proto::TraceResponse> Fetch(
      const proto::TraceRequest& request) const;
  // The error for a trace that does not exist.
  absl::Status NotHere(uint64_t trace) const;
  std::string WaitingFor() const;
  // What is missing from a task's part when all of it should have come, in
  // words for users. Empty if nothing is.
  std::string Missing(const TaskId& task, const Part& part) const;

  bool AllRecord() const;
  bool AllSent() const;
  // Whether the life of the task that recorded `part` still has its session.
  bool IsLive(const TaskId& task, const Part& part) const;
  // Begins the recording, with `step` as the first step.
  void Start(uint64_t step, absl::Time now);
  // Ends the recording. `why` says why steps are missing; it is empty if none
  // are.
  void Close(const std::string& why);
  void Drop();
  void AddOwnSpan(OwnRow row, TraceSpan span);
  // Errors: RESOURCE_EXHAUSTED.
  absl::Status Keep(const proto::TracePart& piece, Part* part);
  Part& PartOf(const TaskId& task, Incarnation incarnation);

  const Job& job_;
  State state_ = proto::TraceResponse::NONE;
  // Whether the order has changed since Advance last returned.
  bool changed_ = false;
  uint64_t trace_ = 0;
  uint32_t steps_ = 0;
  uint64_t first_ = 0;
  uint64_t end_ = 0;
  // All tasks record, or the time for them to begin has passed: the next step
  // to begin is the first of the trace.
  bool armed_ = false;
  // Until when the current state waits for tasks.
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
  // The newest of the coordinator's own spans.
  std::deque<OwnSpan> own_;
  absl::Time own_dropped_until_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_CLUSTER_TRACE_H_
