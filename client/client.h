// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLIENT_CLIENT_H_
#define HOLDFAST_CLIENT_CLIENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/call_group.h"
#include "client/cluster.h"
#include "client/context.h"
#include "client/first_values.h"
#include "client/generation_state.h"
#include "client/giving.h"
#include "client/linking.h"
#include "client/pin.h"
#include "client/question.h"
#include "client/transport.h"
#include "common/job/task_id.h"
#include "common/rpc/rpc_limits.h"
#include "common/rpc/session_news.h"
#include "proto/cluster.pb.h"
#include "proto/coordinator.pb.h"

namespace holdfast::client {

// The decision-making part of a cluster's client, without threads, sockets or a
// session: it sends through a Transport, learns about the job's state through
// Hear, and blocks only in the Await of a handle that is not done. Cluster
// (cluster.cc) combines it with a Wire and a Session.
//
// Thread-safe. Handles must not outlive the Client.
class Client {
 public:
  struct Options {
    Timing timing;
    // See Cluster::Options.
    TaskId task = {kClientJob, 0};
    bool only_reads = false;
    int64_t part_bytes = kPartBytes;
    // The minimum size of a range that is lent, in bytes
    // (docs/protocol/same_host.md).
    uint64_t min_lent_bytes = kMinLentBytes;
    std::function<void(const std::string&)> on_waiting;
    // The names of the ps in errors, indexed by ps: "/job:ps/task:1
    // (127.0.0.1:4001)".
    std::vector<std::string> ps_names;
  };

  // `transport` must outlive this object.
  Client(Options options, Transport* transport);
  ~Client();

  const std::shared_ptr<Context>& context() const { return context_; }

  // Takes news from the session, if the client has one.
  void Hear(const SessionNews& news) { context_->Hear(news); }

  // Each of the functions below starts what the function of Cluster with the
  // corresponding name does. The Await of a Question returns the errors of that
  // function.
  std::unique_ptr<Question<proto::DeclareResponse>> StartDeclare(
      const proto::Declaration& declaration);
  enum class Variables { kReady, kWanted };
  class VariablesRequest : public Cluster::Handle {
   public:
    // kWanted: the cluster lacks first values that the caller can give.
    virtual absl::StatusOr<Variables> Await(absl::Time deadline) = 0;
    // Starts to give the first values. Must be called only after Await has
    // returned kWanted. Calls `values` before it returns. Errors: those of
    // FirstValuesOf.
    virtual absl::StatusOr<std::unique_ptr<Giving>> StartGive(
        const FirstValues& values) = 0;
  };
  // `given_through`: the last generation for which the caller has given the
  // first values; 0 if it has not given them yet. Nullopt: the caller cannot
  // give first values.
  std::unique_ptr<VariablesRequest> StartAwaitVariables(
      std::optional<uint64_t> given_through = std::nullopt);
  bool rolled_back() const;
  const proto::Declaration& declaration() const;
  std::unique_ptr<Cluster::Push> StartPush(GlobalStep step);
  std::unique_ptr<Cluster::Push> StartPush(const Ticket& ticket,
                                           const Parameters& at);
  std::unique_ptr<Cluster::TicketRequest> StartTakeTicket();
  std::unique_ptr<Cluster::Pull> StartPull(GlobalStep min_version,
                                           Parameters* into);
  std::unique_ptr<PinRequest> StartPin(absl::Duration hold);
  std::unique_ptr<Question<proto::ReportEvaluationResponse>>
  StartReportEvaluation(const proto::EvaluationResult& result);
  // StartNextEvaluation and the following overload of StartReportEvaluation
  // belong to no generation, because they concern checkpoints on disk.
  std::unique_ptr<Question<proto::NextEvaluationResponse>>
  StartNextEvaluation();
  std::unique_ptr<Question<proto::ReportEvaluationResponse>>
  StartReportEvaluation(const proto::EvaluationResult& result,
                        const proto::CheckpointName& checkpoint);
  std::unique_ptr<Question<proto::GetStatusResponse>> StartGetStatus(
      bool with_job);
  std::unique_ptr<Question<proto::GetEventsResponse>> StartGetEvents(
      uint64_t after);
  std::unique_ptr<Question<proto::GetHistoryResponse>> StartGetHistory(
      const proto::GetHistoryRequest& request);
  std::unique_ptr<Question<proto::TraceResponse>> StartTrace(
      const proto::TraceRequest& request);
  // Starts one of the calls that Cluster::SaveCheckpoint makes. `what` and
  // `look`: see Question::Options.
  std::unique_ptr<Question<proto::CheckpointResponse>> StartCheckpoint(
      proto::CheckpointRequest request, const std::string& what,
      std::function<Next(const proto::CheckpointResponse&)> look);
  // StartStopJob and StartSetLearningRate may also be called at any time.
  std::unique_ptr<Question<proto::StopResponse>> StartStopJob(
      const proto::StopRequest& request);
  std::unique_ptr<Question<proto::SetLearningRateResponse>>
  StartSetLearningRate(const proto::SetLearningRateRequest& request);

  // Returns the state of the generation that AwaitVariables has entered.
  // Errors: FAILED_PRECONDITION before AwaitVariables; the reason if the
  // generation is over.
  absl::StatusOr<std::shared_ptr<GenerationState>> Ready() const
      ABSL_LOCKS_EXCLUDED(context_->mutex);
  // Does the same for operations that a caller that only reads may not perform.
  // Errors: also FAILED_PRECONDITION for such a caller.
  absl::StatusOr<std::shared_ptr<GenerationState>> ReadyToWork() const
      ABSL_LOCKS_EXCLUDED(context_->mutex);
  absl::Status CheckMember() const;
  bool member() const { return member_; }

 private:
  class VariablesQuestion;

  const std::string& PsName() const { return context_->ps_names[0]; }
  std::function<std::string()> ByCoordinator(const std::string& what) const;
  // Makes the generation that `placement` describes, and whose variables exist,
  // the current one.
  absl::Status Enter(const proto::Sender& sender,
                     const proto::GetPlacementResponse& placement)
      ABSL_LOCKS_EXCLUDED(context_->mutex);
  // For a client without a session whose call was refused: asks what has become
  // of the job, and passes the answer to the context.
  void LookForNews() ABSL_LOCKS_EXCLUDED(context_->mutex);
  // For a worker, one of whose calls a shard has refused with `why`: ends the
  // job for all, by leaving it with this error. The worker's program may take
  // its time, or take no notice; the others would wait for it.
  void OnRefused(const absl::Status& why) ABSL_LOCKS_EXCLUDED(context_->mutex);

  // Whether the caller registers with the coordinator as a task.
  const bool member_;
  // Whether the job waits for the caller's work.
  const bool trains_;
  const int64_t part_bytes_;
  const uint64_t min_lent_bytes_;
  const std::shared_ptr<Context> context_;

  // Null before AwaitVariables.
  std::shared_ptr<GenerationState> generation_ ABSL_GUARDED_BY(context_->mutex);
  // Null before AwaitVariables, then set once.
  std::unique_ptr<const proto::Declaration> declaration_
      ABSL_GUARDED_BY(context_->mutex);

  // Whether a call of LookForNews is in progress.
  bool looking_ ABSL_GUARDED_BY(context_->mutex) = false;
  // Whether OnRefused has been called.
  bool refused_ ABSL_GUARDED_BY(context_->mutex) = false;
  CallGroup news_calls_;
  Linking linking_;
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_CLIENT_H_
