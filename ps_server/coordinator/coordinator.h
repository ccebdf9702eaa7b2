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

// The job's one decision maker: who is here, what a step is made of, who may
// push next on which examples, what is saved, where the job goes on from, and
// when it ends.
//
// A deterministic event machine: messages, replies of shards and archive, and
// clock ticks in; replies and messages out, when the event is over (outbox.h).
// What it does at each is told in docs/protocol/life_of_a_step.md, steps 3, 4
// and 6, in docs/protocol/asynchronous.md, steps A1, A4 and A5, and in
// docs/protocol/recovery.md; its inside in docs/protocol/coordinator.md.
//
// This class takes a call to the part that it concerns, and decides what
// follows from one part for the others. State is the parts' (job.h); what takes
// more than one event is an operation (operation.h). At the end of each event
// the next operation is started that is due and may run:
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
//  1. The job is declared and settled, all ps are there, and no generation is
//     beginning.
//  2. A shard or the coordinator has lost its state. The next generation has
//     begun when the journal says so; whatever was under way is over.
//  3. One at a time, in this order: a Fence when lives are to be shut out; a
//     Save when a checkpoint is due (its writing goes on by itself); a Commit
//     when the open step is complete.
//  4. Every step is committed or, asynchronous, every ticket spent. Early
//     stopping makes the job shorter while it is TRAINING.
//  5. Where there are checkpoints.
//  6. The journal that was found says that the job is finished, and nobody
//     declares more steps [J3].
//  7. Something was waited for too long, a task left with an error, a shard or
//     the disk refused, or Fail() was called; not while the journal of 5 is
//     being written.
//  8. At once in place of whatever is under way; DONE and STOPPED: when nobody
//     is waited for any more.
//  9. [E1] An operator has asked for it. A job that is STARTING has nothing
//  that
//     is not on disk.
// 10. [E2, E3] The open step is committed if it is complete, or dropped; then
// the
//     last checkpoint is taken, unless the operator does without.
//
// Thread-compatible: its owner calls it, and the replies that it gave to
// ShardLinks and Archive, from one thread at a time. Replies and messages are
// sent from inside methods, and may come back into any of them.
//
// Invariants: one step is open; a contribution that was given a verdict gets
// the same one for as long as its worker may ask in that generation; no message
// carries a generation that is not in the journal.
class Coordinator : private Members::Owner, private Director {
 public:
  using Options = CoordinatorOptions;

  // `archive` is null where there is no checkpoint directory. All must outlive
  // the coordinator.
  Coordinator(const Options& options, const Clock* clock, ShardLinks* links,
              Archive* archive);

  // Errors of the following are those of the methods in
  // proto/coordinator.proto.
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
  // The following three answer inside the call.
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

  // This ps's part in the trace of the cluster, if there is one.
  std::optional<proto::TraceOrder> trace_order() const override {
    return trace_.order();
  }
  void OnOwnRecording(uint64_t trace);
  void AddOwnTrace(std::vector<TraceTrack> tracks,
                   std::optional<absl::Time> complete_from);
  // Whether somebody still asks for a trace.
  bool trace_held() const { return trace_.held(); }
  void Stop(const proto::StopRequest& request,
            Reply<proto::StopResponse> reply);
  void SetLearningRate(const proto::SetLearningRateRequest& request,
                       Reply<proto::SetLearningRateResponse> reply);

  // What this ps reports of itself, for GetStatus: it renews no lease.
  void OnOwnReport(const proto::PsReport& report);

  // Tells people that this ps is told to stop, for `reason`, and that another
  // life of it may take its place.
  void OnToldToStop(const std::string& reason);

  // Judges leases and timeouts, answers parked calls whose time is up, sends
  // again what was not answered. Call it some ten times a second.
  void Tick();

  // Ends the job from outside, as when this ps is told to stop. Does nothing
  // once the journal is being written that says that the job is finished: then
  // it is DONE when that is on disk.
  void Fail(const std::string& reason);

  const proto::JobState& state() const override { return job_.state; }
  Generation generation() const override { return job_.generation; }
  // What has happened, for the log of the daemon.
  const EventLog& events() const { return job_.chronicle.events(); }
  // Verdicts that are remembered.
  size_t verdicts_kept() const { return job_.verdicts.size(); }
  // True when the job has ended and everybody who can be told has been told:
  // the daemon may exit.
  bool finished() const { return end_.finished(); }

 private:
  // What members ask and tell.
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

  // What operations tell.
  void FailUnlessFinishing(const std::string& reason) override;
  void FailNow(const std::string& reason) override;
  void OnGenerationOver() override;
  void OnGenerationBegun(const proto::Position& position) override;
  void OnValuesWanted() override;
  void OnRestored(const proto::Manifest& from) override;
  void OnStepClosed() override;
  void OnFinished() override;
  void OnSavedToStop(const proto::Position& position) override;

  // Begins where the journal says that the job is.
  void TakeUp(const proto::Journal& journal);
  absl::Status Resume(const TaskId& task, const proto::Declaration& complete);
  void AdvanceFinishedBefore();
  // Of a job that is finished.
  void GoToLastCheckpoint();
  // The last thing in each event: what has become due.
  void Settle();
  // Every step is made: the last checkpoint, then the end.
  void Conclude();
  // Ends a job whose gradients are not finite any more. False where there is no
  // such thing.
  bool FailIfDiverged();
  // [E2] What follows from the wish that the job stops, as things are.
  void AdvanceStop();
  // [E4] The job is STOPPED.
  void EndStopped();
  // The job has ended: answers whoever waits for that, or in vain for something
  // else.
  void AnswerOfEnd();
  // The time of training begins when the first step has the workers that it
  // needs.
  void StartClockWhenReady();
  // The job is TRAINING, and its clock runs.
  void OnTraining(absl::Time now);
  // Once a second: what follows for people from how far the job is.
  void Look(absl::Time now);
  void JudgePaces(absl::Time now);
  void OnEvaluation(const proto::EvaluationResult& result, bool by_evaluator);
  // Ends the job early once evaluations have decided so.
  void AdvanceEarlyStopping();
  // Of the open step, which is not made any more.
  void RefuseContributions();
  // Gives checkpoints to evaluators that wait for one.
  void AssignEvaluations();
  proto::NextEvaluationResponse EvaluationAnswer(const TaskId& evaluator) const;
  // What a step that is complete waits for at a step that is evaluated.
  std::string WaitingForEvaluation(std::optional<uint64_t> missing) const;
  // Fills in what is decided of learning rate, evaluations and early end.
  void AddDecisions(proto::GetStatusResponse* status) const;
  // As people are told, whether or not the task is live.
  std::string NameOf(const TaskId& task) const;
  // Answers parked contributions and requests for tickets whose time is up.
  void AnswerDue(absl::Time now);
  // Starts the operation that is due.
  void StartNext();
  // A task is silent, or has left.
  void OnGone(const TaskId& task);
  // [L4] No more of this life.
  void ShutOut(const TaskId& worker);
  // Shuts out a worker that lives and has told what is not so.
  void Expel(const TaskId& worker, const absl::Status& why);
  // A push does not count.
  void Refuse(const PushId& push, proto::Verdict verdict);
  // [A4] What the request tells as spent is spent.
  void Book(const PushId& push, const proto::SpentTicket& spent);
  // The worker knows what became of its pushes up to `sequence`.
  void AckThrough(const WorkerLife& from, uint64_t sequence);
  // That the worker may take tickets, and has told nothing that cannot be.
  absl::Status CheckMayTake(const proto::TakeTicketRequest& request,
                            const PushId& push) const;
  void GrantTickets();

  // Answers, as things are.
  absl::StatusOr<proto::GetPlacementResponse> PlacementAnswer() const;
  void AnswerPlacements();
  proto::ContributeResponse ContributeAnswer(proto::Verdict verdict) const;
  // Without a verdict.
  proto::ContributeResponse NotYetAnswer(const std::string& waiting_for) const;
  proto::TakeTicketResponse TicketAnswer() const;
  // With the ticket that is out with `push`, if there is one.
  proto::TakeTicketResponse TicketAnswer(const PushId& push) const;
  proto::TakeTicketResponse TicketRefusal(proto::Verdict verdict) const;
  // Those that get no ticket are told what they wait for.
  void AnswerTickets(std::vector<TicketBook::Parked::Call> calls);
  void RefuseTickets(std::vector<TicketBook::Parked::Call> calls,
                     proto::Verdict verdict);

  // For workers that hold tickets or, where none is out, for all.
  std::string WaitingForTickets() const;

  Job job_;
  Restore restore_;
  Fence fence_;
  Save save_;
  Commit commit_;
  End end_;
  StopOrder stop_;
  // Those that are due begin in this order.
  const std::array<Operation*, 4> operations_ = {&restore_, &fence_, &save_,
                                                 &commit_};
  Patience patience_;
  ClusterTrace trace_;
  DecisionWriter decisions_;
  // Results have come since it was last judged whether the job ends early.
  bool judge_early_stopping_ = false;
  ParkedCalls<WorkerLife, proto::NextEvaluationResponse> parked_evaluations_;
  // In the event of a tick.
  std::optional<absl::Time> ticked_at_;
  absl::Time next_look_ = absl::InfinitePast();
  // By the generation up to which the caller has given first values; of one
  // that has none, the greatest number.
  ParkedCalls<uint64_t, proto::GetPlacementResponse> parked_placements_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_COORDINATOR_H_
