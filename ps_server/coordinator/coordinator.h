// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_COORDINATOR_COORDINATOR_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_COORDINATOR_H_

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/job/ids.h"
#include "proto/coordinator.pb.h"
#include "ps_server/coordinator/archive.h"
#include "ps_server/coordinator/cluster_trace.h"
#include "ps_server/coordinator/commit.h"
#include "ps_server/coordinator/coordinator_options.h"
#include "ps_server/coordinator/decision_writer.h"
#include "ps_server/coordinator/end.h"
#include "ps_server/coordinator/fence.h"
#include "ps_server/coordinator/job.h"
#include "ps_server/coordinator/members.h"
#include "ps_server/coordinator/operation.h"
#include "ps_server/coordinator/patience.h"
#include "ps_server/coordinator/restore.h"
#include "ps_server/coordinator/save.h"
#include "ps_server/coordinator/stop_order.h"
#include "ps_server/coordinator/ticket_book.h"
#include "ps_server/protocol/parked_calls.h"
#include "ps_server/protocol/push_id.h"
#include "ps_server/protocol/shard_messages.h"
#include "ps_server/reply/reply.h"

namespace holdfast {

// The job's only decision maker: it decides who is a member, what a step is
// made of, who may push next on which examples, what is saved, where the job
// resumes, and when it ends.
//
// A deterministic event machine: messages, replies from the shards and the
// archive, and clock ticks come in; replies and messages go out when the event
// is over (outbox.h). Its behavior is specified in
// docs/protocol/life_of_a_step.md, steps 3, 4 and 6, in
// docs/protocol/asynchronous.md, steps A1, A4 and A5, and in
// docs/protocol/recovery.md; its internals are described in
// docs/protocol/coordinator.md.
//
// This class passes each call to the part that it concerns, and decides what a
// change in one part means for the others. The parts own the state (job.h);
// anything that takes more than one event is an operation (operation.h). At the
// end of each event, the next operation that is due and may run is started:
//
//       +-----------(2)------------+------------(2)----------+
//       v                          |                         |
//   STARTING ---(1) Restore---> TRAINING ----(4)---> TRAINING, all made
//    |     |                    |  |  ^                      |
//    |     |                    |  +(3)              (5) Save, the last
//    |     |                    | Fence, Save, Commit        |
//    |     |                   (9)                           |
//    |     |                    v                            |
//    |     +---(9)--+        STOPPING --(5) all made---------+
//    |     |        |           |                            |
//    |     |        |    (10) Fence, Commit, Save            |
//    |     |        v           v                            |
//    |     |      STOPPED <-----+                            |
//    |     |        |                                        |
//    |     +--------|--------------(6)-----------+           |
//    |              |                            v           v
//    +---(7)---> FAILED <---(7)--- any          DONE <-------+
//                   |                            |
//                   +----------(8) End ----------+
//
//  1. The job is declared and settled, all ps have registered, and no
//     generation is beginning.
//  2. A shard or the coordinator has lost its state. The next generation begins
//     once the journal says so; whatever was in progress is abandoned.
//  3. One at a time, in this order: a Fence when there are lives to fence; a
//     Save when a checkpoint is due (it is written in the background); a Commit
//     when the open step is complete.
//  4. Every step is committed or, in an asynchronous job, every ticket is
//     spent. Early stopping can shorten the job while it is TRAINING.
//  5. Save is skipped if the job takes no checkpoints.
//  6. The journal found at the start says that the job is finished, and no
//     chief declares more steps [J3].
//  7. A wait timed out, a task left with an error, a shard or the disk refused,
//     or Fail() was called; but not while the journal of 5 is being written.
//  8. FAILED: at once, in place of whatever is in progress. DONE and STOPPED:
//     when there is no task left to wait for.
//  9. [E1] An operator has asked the job to stop. A job that is STARTING is
//     STOPPED at once, because it has nothing that is not on disk.
// 10. [E2, E3] The open step is committed if it is complete, and otherwise
//     dropped; then the last checkpoint is taken, unless the operator has
//     waived it.
//
// Thread-compatible: its owner calls its methods, and the replies that it has
// passed to ShardLinks and Archive, from one thread at a time. Replies and
// messages are sent from inside methods, and may call back into any of them.
//
// Invariants: at most one step is open; the verdict on a contribution does not
// change, and is kept for as long as its worker may ask for it in that
// generation; no message carries a generation that is not in the journal.
class Coordinator : private Members::Owner, private Director {
 public:
  using Options = CoordinatorOptions;

  // `archive` is null if there is no checkpoint directory. What the pointers
  // refer to must outlive the coordinator.
  Coordinator(const Options& options, const Clock* clock, ShardLinks* links,
              Archive* archive);

  // The errors of the following methods are those of the methods with the same
  // names in proto/coordinator.proto.
  void Register(const proto::RegisterRequest& request,
                Reply<proto::RegisterResponse> reply);
  void RenewLease(const proto::RenewLeaseRequest& request,
                  Reply<proto::RenewLeaseResponse> reply);
  void Declare(const proto::DeclareRequest& request,
               Reply<proto::DeclareResponse> reply);
  void GetPlacement(const proto::GetPlacementRequest& request,
                    Reply<proto::GetPlacementResponse> reply);
  void Contribute(const proto::ContributeRequest& request,
                  Reply<proto::ContributeResponse> reply);
  void TakeTicket(const proto::TakeTicketRequest& request,
                  Reply<proto::TakeTicketResponse> reply);
  void ReportEvaluation(const proto::ReportEvaluationRequest& request,
                        Reply<proto::ReportEvaluationResponse> reply);
  void NextEvaluation(const proto::NextEvaluationRequest& request,
                      Reply<proto::NextEvaluationResponse> reply);
  void Leave(const proto::LeaveRequest& request,
             Reply<proto::LeaveResponse> reply);
  // The following three reply before they return.
  void GetStatus(const proto::GetStatusRequest& request,
                 Reply<proto::GetStatusResponse> reply);
  void GetEvents(const proto::GetEventsRequest& request,
                 Reply<proto::GetEventsResponse> reply);
  void GetHistory(const proto::GetHistoryRequest& request,
                  Reply<proto::GetHistoryResponse> reply);
  void Checkpoint(const proto::CheckpointRequest& request,
                  Reply<proto::CheckpointResponse> reply);
  void Trace(const proto::TraceRequest& request,
             Reply<proto::TraceResponse> reply);
  void ReportTrace(const proto::ReportTraceRequest& request,
                   Reply<proto::ReportTraceResponse> reply);

  // The coordinator's own ps takes part in a trace through the following three
  // methods, because it renews no lease. trace_order returns what the ps must
  // record or send; absent if there is no trace.
  std::optional<proto::TraceOrder> trace_order() const override {
    return trace_.order();
  }
  void OnOwnRecording(uint64_t trace);
  void AddOwnTrace(std::vector<TraceTrack> tracks,
                   std::optional<absl::Time> complete_from);
  // Whether an operator is still asking for a trace.
  bool trace_held() const { return trace_.held(); }
  void Stop(const proto::StopRequest& request,
            Reply<proto::StopResponse> reply);
  void SetLearningRate(const proto::SetLearningRateRequest& request,
                       Reply<proto::SetLearningRateResponse> reply);

  // Takes this ps's report about itself, for GetStatus. Other ps report when
  // they renew their leases; this one has no lease.
  void OnOwnReport(const proto::PsReport& report);

  // Reports to users that this ps has been told to stop, and why, and that a
  // new process may take its place.
  void OnToldToStop(const std::string& reason);

  // Checks leases and timeouts, answers parked calls that have reached their
  // deadlines, and resends unanswered messages. Call it about ten times a
  // second.
  void Tick();

  // Makes the job FAILED, for a reason from outside, such as when this ps is
  // told to stop. Does nothing if the journal that says that the job is
  // finished is being written: the job is then DONE once that journal is on
  // disk.
  void Fail(const std::string& reason);

  const proto::JobState& state() const override { return job_.state; }
  Generation generation() const override { return job_.generation; }
  // The events so far, for the daemon's log.
  const EventLog& events() const { return job_.chronicle.events(); }
  // The number of verdicts kept.
  size_t verdicts_kept() const { return job_.verdicts.size(); }
  // Whether the daemon may exit: the job has ended, and every task that can be
  // told of it has been told.
  bool finished() const { return end_.finished(); }

 private:
  // Members::Owner: queries and notifications from the members.
  bool beginning() const override { return restore_.beginning(); }
  uint64_t durable_step() const override { return save_.durable_step(); }
  std::string WaitingFor() const override;
  absl::Status CheckDigests(const TaskId& task,
                            const proto::RegisterRequest& request) override;
  void OnReplaced(const TaskId& task) override;
  void OnJoined(const TaskId& task, bool again) override;
  void OnBack(const TaskId& task) override;
  void OnLost(const TaskId& task) override;
  void OnTold(const WorkerLife& life) override { end_.OnTold(life); }
  bool HearTrace(const proto::RenewLeaseRequest& request) override {
    return trace_.Hear(request);
  }

  // Director: notifications from operations.
  void FailUnlessFinishing(const std::string& reason) override;
  void FailNow(const std::string& reason) override;
  void OnGenerationOver() override;
  void OnGenerationBegun(const proto::Position& position) override;
  void OnValuesWanted() override;
  void OnRestored(const proto::Manifest& from) override;
  void OnStepClosed() override;
  void OnFinished() override;
  void OnSavedToStop(const proto::Position& position) override;

  // Takes over the state that the journal holds, from which the job resumes.
  void TakeUp(const proto::Journal& journal);
  // Checks what `task` declares for a job that is settled. `only_asks`: it has
  // already been told the ways out.
  absl::Status CheckDeclared(const TaskId& task,
                             const proto::Declaration& complete,
                             bool only_asks) const;
  absl::Status Resume(const TaskId& task, const proto::Declaration& complete);
  // Writes the declaration to the journal, if there is one.
  void WriteDeclaration();
  void AdvanceFinishedBefore();
  // Makes the last checkpoint the state of a job that is finished.
  void GoToLastCheckpoint();
  // Does everything that the event has made due. Called at the end of each
  // event.
  void Settle();
  // Every step has been made: takes the last checkpoint, then ends the job.
  void Conclude();
  // Ends the job as FAILED if it has diverged, and returns whether it has.
  bool FailIfDiverged();
  // [E2] Takes the next step towards stopping the job, if that was asked for.
  void AdvanceStop();
  // [E4] The job is STOPPED.
  void EndStopped();
  // Called when the job has ended. Answers the parked calls that wait for the
  // end, and those that wait for something that will no longer happen.
  void AnswerOfEnd();
  // Starts the training clock once the first step has the workers that it
  // needs.
  void StartClockWhenReady();
  // Called when the job is TRAINING and the training clock has started, at
  // `now`.
  void OnTraining(absl::Time now);
  // Called once a second: updates what users are shown of the progress.
  void Look(absl::Time now);
  void JudgePaces(absl::Time now);
  void OnEvaluation(const proto::EvaluationResult& result, bool by_evaluator);
  // Ends the job early once evaluations have decided so, or a task has asked
  // for it.
  void AdvanceEarlyStopping();
  // Makes the job end at the first step at which it can, but not before `least`
  // steps. Returns the number of steps that it makes.
  uint64_t EndEarly(uint64_t least);
  // Stop with `finish`.
  void Finish(const proto::StopRequest& request,
              Reply<proto::StopResponse> reply);
  // Refuses the contributions to the open step, which will not be made.
  void RefuseContributions();
  // Gives checkpoints to evaluators that wait for one.
  void AssignEvaluations();
  proto::NextEvaluationResponse EvaluationAnswer(const TaskId& evaluator) const;
  // What a complete step that must be evaluated waits for, in words for users.
  // `missing` is the step that Evaluations::MayCommit has set.
  std::string WaitingForEvaluation(std::optional<uint64_t> missing) const;
  // Fills in the decisions about learning rate, evaluations and early stopping.
  void AddDecisions(proto::GetStatusResponse* status) const;
  // The task's name in texts for users, whether or not the task is live.
  std::string NameOf(const TaskId& task) const;
  // Answers parked contributions and ticket requests that have reached their
  // deadlines.
  void AnswerDue(absl::Time now);
  // Starts the next operation that is due.
  void StartNext();
  // Called when a task has been lost, or has left.
  void OnGone(const TaskId& task);
  // Describes, for users, how a task has been lost, or has left.
  std::string DescribeGone(const TaskId& task) const;
  // [L4] Fences the worker's life.
  void ShutOut(const TaskId& worker);
  // Fences a live worker that has made a false statement, which `why`
  // describes.
  void Expel(const TaskId& worker, const absl::Status& why);
  // Records the verdict on a push that does not count.
  void Refuse(const PushId& push, proto::Verdict verdict);
  // [A4] Books a ticket that the request reports as spent.
  void Book(const PushId& push, const proto::SpentTicket& spent);
  // Called when a worker says that it knows the verdicts on its pushes up to
  // `sequence`.
  void AckThrough(const WorkerLife& from, uint64_t sequence);
  // Checks that the worker may take tickets, and that its request contains
  // nothing impossible.
  absl::Status CheckMayTake(const proto::TakeTicketRequest& request,
                            const PushId& push) const;
  void GrantTickets();

  // The following return answers that reflect the current state.
  absl::StatusOr<proto::GetPlacementResponse> PlacementAnswer() const;
  void AnswerPlacements();
  proto::ContributeResponse ContributeAnswer(proto::Verdict verdict) const;
  // An answer without a verdict.
  proto::ContributeResponse NotYetAnswer(const std::string& waiting_for) const;
  proto::TakeTicketResponse TicketAnswer() const;
  // An answer with the ticket that is out with `push`, if there is one.
  proto::TakeTicketResponse TicketAnswer(const PushId& push) const;
  proto::TakeTicketResponse TicketRefusal(proto::Verdict verdict) const;
  // Answers `calls` without a ticket, saying what they wait for.
  void AnswerTickets(std::vector<TicketBook::Parked::Call> calls);
  void RefuseTickets(std::vector<TicketBook::Parked::Call> calls,
                     proto::Verdict verdict);

  // Names the workers that hold tickets or, if no ticket is out, all workers.
  std::string WaitingForTickets() const;

  Job job_;
  Restore restore_;
  Fence fence_;
  Save save_;
  Commit commit_;
  End end_;
  StopOrder stop_;
  // In order of precedence: if several are due, the first is started.
  const std::array<Operation*, 4> operations_ = {&restore_, &fence_, &save_,
                                                 &commit_};
  Patience patience_;
  ClusterTrace trace_;
  DecisionWriter decisions_;
  // Whether results have arrived since early stopping was last judged.
  bool judge_early_stopping_ = false;
  ParkedCalls<WorkerLife, proto::NextEvaluationResponse> parked_evaluations_;
  // The time of the tick; set only while its event is handled.
  std::optional<absl::Time> ticked_at_;
  absl::Time next_look_ = absl::InfinitePast();
  // Keyed by the generation up to which the caller has given first values, or
  // by the greatest number if it has none to give.
  ParkedCalls<uint64_t, proto::GetPlacementResponse> parked_placements_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_COORDINATOR_H_
