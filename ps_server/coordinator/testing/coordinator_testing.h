// SPDX-License-Identifier: Apache-2.0

// Shared by the coordinator's tests: fakes of the shards and of the disk that a
// test controls, and a cluster whose tasks send what a test tells them to.
//
// Neither the coordinator nor function bodies are included here, so that the
// many files that include this one compile quickly.
#ifndef HOLDFAST_PS_SERVER_COORDINATOR_TESTING_COORDINATOR_TESTING_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_TESTING_COORDINATOR_TESTING_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/job/ids.h"
#include "common/job/task_id.h"
#include "gtest/gtest.h"
#include "proto/checkpoint.pb.h"
#include "proto/cluster.pb.h"
#include "proto/coordinator.pb.h"
#include "proto/shard.pb.h"
#include "ps_server/coordinator/archive.h"
#include "ps_server/coordinator/coordinator_options.h"
#include "ps_server/protocol/shard_messages.h"
#include "ps_server/reply/reply.h"
#include "ps_server/shard/testing/machine_testing.h"

namespace holdfast {

class Coordinator;
class EventLog;
class Receipts;

inline constexpr absl::StatusCode kAborted = absl::StatusCode::kAborted;
inline constexpr absl::StatusCode kExists = absl::StatusCode::kAlreadyExists;
inline constexpr absl::StatusCode kExhausted =
    absl::StatusCode::kResourceExhausted;
inline constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
inline constexpr absl::StatusCode kNotFound = absl::StatusCode::kNotFound;
inline constexpr absl::StatusCode kNotReady =
    absl::StatusCode::kFailedPrecondition;

inline constexpr absl::Duration kLease = absl::Seconds(10);
// The nonce of the coordinator's own shard.
inline constexpr uint64_t kShardNonce = 5;
inline constexpr absl::Duration kResendAfter = absl::Seconds(5);

inline TaskId Ps(uint32_t index) { return {kPsJob, index}; }
inline TaskId Worker(uint32_t index) { return {kWorkerJob, index}; }
inline TaskId Chief() { return {kChiefJob, 0}; }

// Keeps what the coordinator sends, for the test to answer.
class PuppetLinks : public ShardLinks {
 public:
  template <typename Request, typename Response>
  struct Sent {
    uint32_t ps;
    Request request;
    Reply<Response> reply;
  };
  template <typename Request, typename Response>
  using Messages = std::deque<Sent<Request, Response>>;

  PuppetLinks();
  ~PuppetLinks() override;

  void SetAddress(uint32_t ps, const std::string& address) override;
  void Send(uint32_t ps, const ShardRequest& request,
            Reply<ShardResponse> reply) override;

  // Answers the oldest message to `ps`, and takes it away.
  template <typename Request, typename Response>
  static void Answer(Messages<Request, Response>& messages, uint32_t ps,
                     const absl::Status& status = absl::OkStatus(),
                     const Response& response = Response());
  // Answers all messages, including those that the coordinator sends in
  // response.
  template <typename Request, typename Response>
  static void AnswerAll(Messages<Request, Response>& messages);
  // The ps that the messages are addressed to.
  template <typename Request, typename Response>
  static std::vector<uint32_t> To(const Messages<Request, Response>& messages);

  std::vector<std::pair<uint32_t, std::string>> addresses;

  // Messages that wait for an answer.
  Messages<proto::RestoreRequest, proto::RestoreResponse> restores;
  Messages<proto::CommitRequest, proto::CommitResponse> commits;
  Messages<proto::FenceRequest, proto::FenceResponse> fences;
  Messages<proto::ResolveRequest, proto::ResolveResponse> resolves;
  Messages<proto::HoldRequest, proto::HoldResponse> holds;
  Messages<proto::SaveRequest, proto::SaveResponse> saves;
  Messages<proto::AwaitSavedRequest, proto::AwaitSavedResponse> awaits;
  Messages<proto::EndRequest, proto::EndResponse> ends;

 private:
  auto& QueueOf(const proto::RestoreRequest&) { return restores; }
  auto& QueueOf(const proto::CommitRequest&) { return commits; }
  auto& QueueOf(const proto::FenceRequest&) { return fences; }
  auto& QueueOf(const proto::ResolveRequest&) { return resolves; }
  auto& QueueOf(const proto::HoldRequest&) { return holds; }
  auto& QueueOf(const proto::SaveRequest&) { return saves; }
  auto& QueueOf(const proto::AwaitSavedRequest&) { return awaits; }
  auto& QueueOf(const proto::EndRequest&) { return ends; }
};

// A checkpoint directory that outlives its coordinators. Answers inside the
// call or, if not `quick`, keeps requests for the test to answer.
class PuppetArchive : public Archive {
 public:
  template <typename Request, typename Response>
  struct Asked {
    Request request;
    Reply<Response> reply;
  };

  PuppetArchive();
  ~PuppetArchive() override;

  void WriteJournal(const proto::Journal& request, Reply<Done> reply) override;
  void WriteManifest(const proto::Manifest& request,
                     Reply<Done> reply) override;
  void WriteHistory(proto::History request, Reply<Done> reply) override;
  void ReadManifest(const proto::CheckpointName& request,
                    Reply<proto::Manifest> reply) override;
  void SetAside(const proto::CheckpointName& name) override;
  void KeepBest(const proto::CheckpointName& name, Reply<Done> reply) override;
  void RemoveOthersOfBest() override;
  void RemoveOthers(const proto::CheckpointName* under_way) override;

  // Carries out the oldest write, or makes it fail with `status`.
  void AnswerJournal(const absl::Status& status = absl::OkStatus());
  void AnswerManifest(const absl::Status& status = absl::OkStatus());
  void AnswerHistory(const absl::Status& status = absl::OkStatus());
  // Answers the oldest read with what was written, or with `status`.
  void AnswerRead(const absl::Status& status = absl::OkStatus());

  // The generation and step, like "1/7".
  static std::string Name(const proto::CheckpointName& name);
  // The checkpoints that the journal names, like "1/7 2/9".
  std::string Checkpoints() const;

  bool quick = true;
  // The answer to WriteHistory if `quick`.
  absl::Status history_status;
  // What is on disk.
  proto::Journal journal;
  std::map<std::string, proto::Manifest> complete;
  proto::History history;
  std::vector<std::string> set_aside;
  // The checkpoints in the folder of the best, and the answer to KeepBest.
  std::set<std::string> best;
  absl::Status best_status;
  // The `under_way` argument of each call of RemoveOthers.
  std::vector<std::string> removals;
  // Requests that wait for an answer.
  std::deque<Asked<proto::Journal, Done>> journals;
  std::deque<Asked<proto::Manifest, Done>> manifests;
  std::deque<Asked<proto::History, Done>> histories;
  std::deque<Asked<proto::CheckpointName, proto::Manifest>> reads;
};

// Shards that answer inside the call.
class QuickLinks : public ShardLinks {
 public:
  void SetAddress(uint32_t ps, const std::string& address) override {}
  void Send(uint32_t ps, const ShardRequest& request,
            Reply<ShardResponse> reply) override;

  // The messages and their receivers, in order.
  std::vector<std::string> told;
};

// The seats, workers and weights (divided by the divisor) of a Commit, like
// "0:worker0#3*0.25 ...".
std::string S(const proto::CommitRequest& commit);
// "w" [2,3] and "b" [3], SGD with learning rate 0.1.
proto::Declaration MakeDeclaration(uint64_t total_steps = 10);
proto::Declaration WithMode(uint32_t n, uint32_t m, uint64_t total_steps = 10);
// Asynchronous, with `tickets` tickets, of which a worker holds at most `depth`
// + 1.
proto::Declaration Asynchronous(uint64_t tickets, uint32_t depth = 1);
// Asynchronous, with workers that never get more than `bound` pushes ahead of
// the slowest.
proto::Declaration Bounded(uint32_t bound, uint64_t tickets = 100,
                           uint32_t depth = 1);
// Synchronous, with examples by ticket.
proto::Declaration ByTicket(uint32_t n, uint32_t m, uint64_t tickets);
// A push that was applied by every shard.
proto::SpentTicket Spent(uint64_t sequence, uint64_t examples = 10,
                         double loss = 1, uint64_t staleness = 0);

class CoordinatorTest : public ::testing::Test {
 protected:
  CoordinatorTest();
  ~CoordinatorTest() override;

  void Make(uint32_t num_ps = 2, uint32_t num_workers = 2,
            bool has_chief = false);
  // Like Make, with a checkpoint directory.
  void MakeWithArchive(uint32_t num_ps = 2, uint32_t num_workers = 2);
  // Begins a life of the coordinator, with what its directory holds.
  void Begin();
  // The same with `links` instead of PuppetLinks.
  void Begin(ShardLinks* links);

  // The following speak for tasks that have joined, in their current
  // incarnation.
  proto::Sender SenderOf(const TaskId& task);
  proto::RegisterRequest RegisterOf(const TaskId& task, uint64_t nonce = 1);

  // The coordinator's answers.
  Answer<proto::RegisterResponse> Ask(const proto::RegisterRequest& request);
  Answer<proto::RenewLeaseResponse> Ask(
      const proto::RenewLeaseRequest& request);
  Answer<proto::DeclareResponse> Ask(const proto::DeclareRequest& request);
  Answer<proto::GetPlacementResponse> Ask(
      const proto::GetPlacementRequest& request);
  Answer<proto::ContributeResponse> Ask(
      const proto::ContributeRequest& request);
  Answer<proto::TakeTicketResponse> Ask(
      const proto::TakeTicketRequest& request);
  Answer<proto::ReportEvaluationResponse> Ask(
      const proto::ReportEvaluationRequest& request);
  Answer<proto::LeaveResponse> Ask(const proto::LeaveRequest& request);
  Answer<proto::GetStatusResponse> Ask(const proto::GetStatusRequest& request);
  Answer<proto::GetEventsResponse> Ask(const proto::GetEventsRequest& request);
  Answer<proto::GetHistoryResponse> Ask(
      const proto::GetHistoryRequest& request);
  Answer<proto::CheckpointResponse> Ask(
      const proto::CheckpointRequest& request);
  // The answer of any other method; for tests that include coordinator.h.
  template <typename Request, typename Response>
  Answer<Response> Ask(void (Coordinator::*method)(const Request&,
                                                   Reply<Response>),
                       const Request& request) {
    return holdfast::Ask(*coordinator_, method, request);
  }
  // For tests that do something inside the reply.
  void Send(const proto::RegisterRequest& request,
            Reply<proto::RegisterResponse> reply);
  void Send(const proto::ContributeRequest& request,
            Reply<proto::ContributeResponse> reply);
  void Send(const proto::TakeTicketRequest& request,
            Reply<proto::TakeTicketResponse> reply);

  Answer<proto::RegisterResponse> Register(const TaskId& task,
                                           uint64_t nonce = 1);
  // Whether the answer asks the task to try again.
  static bool IsNotYet(const Answer<proto::RegisterResponse>& answer);
  void Join(const TaskId& task, uint64_t nonce = 1);
  // Renews the lease of a task that knows the current state and waits for news.
  Answer<proto::RenewLeaseResponse> Renew(const TaskId& task,
                                          uint64_t wait_ms = 0);
  Answer<proto::DeclareResponse> Declare(
      const proto::Declaration& declaration = MakeDeclaration(),
      const TaskId& task = Worker(0));
  Answer<proto::GetPlacementResponse> GetPlacement(uint64_t wait_ms);
  Answer<proto::LeaveResponse> Leave(const TaskId& task,
                                     const std::string& error = "");
  proto::GetStatusResponse Status();

  // Receipts as the shards give them; none if there are no variables. Inside a
  // reply, when no other call is answered, the placement last seen is used.
  std::optional<Receipts> ReceiptsNow();
  // The request with the receipts of an honest worker.
  proto::ContributeRequest Signed(proto::ContributeRequest request);
  proto::TakeTicketRequest Signed(proto::TakeTicketRequest request);

  // An offer of `examples` with loss 1.
  proto::ContributeRequest OfferOf(const TaskId& task, uint64_t step,
                                   uint32_t seat, uint64_t sequence,
                                   uint64_t examples = 10);
  // Sends the request with the right receipts.
  Answer<proto::ContributeResponse> Contribute(
      const proto::ContributeRequest& request);
  Answer<proto::ContributeResponse> Offer(const TaskId& task, uint64_t step,
                                          uint32_t seat, uint64_t sequence,
                                          uint64_t examples = 10);

  // Asks for the ticket of a push, and reports which earlier ones are spent.
  proto::TakeTicketRequest TakeOf(
      const TaskId& task, uint64_t sequence,
      const std::vector<proto::SpentTicket>& spent = {});
  // Sends the request with the right receipts.
  Answer<proto::TakeTicketResponse> Take(
      const proto::TakeTicketRequest& request);
  Answer<proto::TakeTicketResponse> Take(
      const TaskId& task, uint64_t sequence,
      const std::vector<proto::SpentTicket>& spent = {});
  // Reports that push `sequence` of the task has been applied.
  Answer<proto::TakeTicketResponse> Book(const TaskId& task, uint64_t sequence);
  // The index of the ticket in the answer.
  static uint64_t Index(const Answer<proto::TakeTicketResponse>& answer);
  // Whether there is an answer without a ticket.
  static bool Empty(const Answer<proto::TakeTicketResponse>& answer);

  // Workers 0 and 1 fill the two seats of `step`, each with push step + 1.
  void OfferBoth(uint64_t step);
  // The i-th Commit that is waiting for an answer.
  proto::CommitRequest Commit(size_t i = 0) const;
  void AckCommits();
  // Every shard takes its share of the checkpoint, and writes it.
  void FinishSave();
  void AnswerWritten(uint32_t ps);
  void AckEnds();

  std::vector<TaskId> AllTasks() const;
  std::vector<TaskId> AllBut(const TaskId& silent) const;
  // Brings the job to the opening of step 0: all tasks join, and the variables
  // are made.
  void StartTraining(const proto::Declaration& declaration = MakeDeclaration());
  // Commits all steps of a job with two workers.
  void TrainToTheEnd(uint64_t total_steps = 2);

  void Advance(absl::Duration time);
  void Tick();
  // Lets time pass with ticks, in which `tasks` renew their leases.
  void Pass(absl::Duration time, const std::vector<TaskId>& tasks);
  void Fail(const std::string& reason);
  void OnOwnReport(const proto::PsReport& report);
  void OnToldToStop(const std::string& reason);
  const proto::JobState& state() const;
  Generation generation() const;
  const EventLog& events() const;
  bool finished() const;

  FakeClock clock_;
  absl::Duration recovery_timeout_ = absl::Seconds(300);
  std::unique_ptr<PuppetArchive> archive_;
  CoordinatorOptions options_;
  std::map<TaskId, uint64_t> incarnations_;
  proto::GetPlacementResponse placement_;
  std::unique_ptr<PuppetLinks> links_;
  std::unique_ptr<Coordinator> coordinator_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_TESTING_COORDINATOR_TESTING_H_
