// What the coordinator's tests share: puppets of shards and disk, and a cluster
// whose tasks speak when a test tells them to.
#ifndef HOLDFAST_PS_SERVER_COORDINATOR_COORDINATOR_TESTING_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_COORDINATOR_TESTING_H_

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/rpc_limits.h"
#include "common/task_id.h"
#include "gtest/gtest.h"
#include "ps_server/coordinator/coordinator.h"
#include "ps_server/protocol/receipts.h"
#include "ps_server/protocol/request.h"
#include "ps_server/protocol/shard_messages.h"
#include "ps_server/shard/testing.h"

namespace holdfast {

inline constexpr absl::StatusCode kAborted = absl::StatusCode::kAborted;
inline constexpr absl::StatusCode kExists = absl::StatusCode::kAlreadyExists;
inline constexpr absl::StatusCode kExhausted =
    absl::StatusCode::kResourceExhausted;
inline constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
inline constexpr absl::StatusCode kNotFound = absl::StatusCode::kNotFound;
inline constexpr absl::StatusCode kNotReady =
    absl::StatusCode::kFailedPrecondition;

inline constexpr absl::Duration kLease = absl::Seconds(10);
// Of the shard beside the coordinator.
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

  void SetAddress(uint32_t ps, const std::string& address) override {
    addresses.emplace_back(ps, address);
  }
  void Send(uint32_t ps, const ShardRequest& request,
            Reply<ShardResponse> reply) override {
    std::visit(
        [&](const auto& typed) {
          using Request = std::decay_t<decltype(typed)>;
          std::get<MessagesOf<Request>>(sent_).push_back(
              {ps, typed, OfMethod<Request>(std::move(reply))});
        },
        request);
  }

  // Answers the oldest message to `ps`, and takes it away.
  template <typename Request, typename Response>
  static void Answer(Messages<Request, Response>& messages, uint32_t ps,
                     const absl::Status& status = absl::OkStatus(),
                     const Response& response = Response()) {
    for (auto it = messages.begin(); it != messages.end(); ++it) {
      if (it->ps != ps) continue;
      Reply<Response> reply = std::move(it->reply);
      messages.erase(it);
      if (status.ok()) return reply(response);
      return reply(status);
    }
    ADD_FAILURE() << "nothing was sent to ps " << ps;
  }
  // Answers all that is there now, and all that is sent in turn.
  template <typename Request, typename Response>
  static void AnswerAll(Messages<Request, Response>& messages) {
    while (!messages.empty()) Answer(messages, messages.front().ps);
  }
  // To whom the messages are.
  template <typename Request, typename Response>
  static std::vector<uint32_t> To(const Messages<Request, Response>& messages) {
    std::vector<uint32_t> to;
    for (const auto& message : messages) to.push_back(message.ps);
    return to;
  }

  std::vector<std::pair<uint32_t, std::string>> addresses;

 private:
  template <typename Request>
  using MessagesOf = Messages<Request, typename ShardMethod<Request>::Response>;
  template <typename>
  struct Queues;
  template <typename... Requests>
  struct Queues<std::variant<Requests...>> {
    using Type = std::tuple<MessagesOf<Requests>...>;
  };
  Queues<ShardRequest>::Type sent_;

 public:
  // What waits for an answer.
  MessagesOf<proto::RestoreRequest>& restores = std::get<0>(sent_);
  MessagesOf<proto::CommitRequest>& commits = std::get<1>(sent_);
  MessagesOf<proto::FenceRequest>& fences = std::get<2>(sent_);
  MessagesOf<proto::ResolveRequest>& resolves = std::get<3>(sent_);
  MessagesOf<proto::HoldRequest>& holds = std::get<4>(sent_);
  MessagesOf<proto::SaveRequest>& saves = std::get<5>(sent_);
  MessagesOf<proto::AwaitSavedRequest>& awaits = std::get<6>(sent_);
  MessagesOf<proto::EndRequest>& ends = std::get<7>(sent_);
};

// A checkpoint directory that lasts longer than its coordinators. Answers
// inside the call or, when it is not quick, keeps what is asked for the test to
// answer.
class PuppetArchive : public Archive {
 public:
  template <typename Request, typename Response>
  struct Asked {
    Request request;
    Reply<Response> reply;
  };

  PuppetArchive() { journal.set_directory_nonce(4711); }

  void WriteJournal(const proto::Journal& request, Reply<Done> reply) override {
    journals.push_back({request, std::move(reply)});
    if (quick) AnswerJournal();
  }
  void WriteManifest(const proto::Manifest& request,
                     Reply<Done> reply) override {
    manifests.push_back({request, std::move(reply)});
    if (quick) AnswerManifest();
  }
  void WriteHistory(proto::History request, Reply<Done> reply) override {
    histories.push_back({std::move(request), std::move(reply)});
    if (quick) AnswerHistory(history_status);
  }
  void ReadManifest(const proto::CheckpointName& request,
                    Reply<proto::Manifest> reply) override {
    reads.push_back({request, std::move(reply)});
    if (quick) AnswerRead();
  }
  void SetAside(const proto::CheckpointName& name) override {
    set_aside.push_back(Name(name));
  }
  void RemoveOthers(const proto::CheckpointName* under_way) override {
    removals.push_back(under_way == nullptr ? "" : Name(*under_way));
  }

  // The oldest write is carried out, or fails.
  void AnswerJournal(const absl::Status& status = absl::OkStatus()) {
    Finish(journals, status, [this](const proto::Journal& written) {
      journal = written;
      return Done();
    });
  }
  void AnswerManifest(const absl::Status& status = absl::OkStatus()) {
    Finish(manifests, status, [this](const proto::Manifest& written) {
      complete[Name(written.name())] = written;
      return Done();
    });
  }
  void AnswerHistory(const absl::Status& status = absl::OkStatus()) {
    Finish(histories, status, [this](const proto::History& written) {
      history = written;
      return Done();
    });
  }
  // The oldest read finds what was written.
  void AnswerRead(const absl::Status& status = absl::OkStatus()) {
    Finish(reads, status,
           [this](const proto::CheckpointName& name)
               -> absl::StatusOr<proto::Manifest> {
             const auto found = complete.find(Name(name));
             if (found != complete.end()) return found->second;
             return absl::NotFoundError(Name(name));
           });
  }

  // As "1/7": generation and step.
  static std::string Name(const proto::CheckpointName& name) {
    return absl::StrCat(name.generation(), "/", name.step());
  }
  // Those of the journal, as "1/7 2/9".
  std::string Checkpoints() const {
    std::vector<std::string> names;
    for (const auto& name : journal.checkpoints()) names.push_back(Name(name));
    return absl::StrJoin(names, " ");
  }

  bool quick = true;
  // What becomes of histories then.
  absl::Status history_status;
  // What is on disk.
  proto::Journal journal;
  std::map<std::string, proto::Manifest> complete;
  proto::History history;
  std::vector<std::string> set_aside;
  // What RemoveOthers was told to be under way, each time.
  std::vector<std::string> removals;
  // What waits for an answer.
  std::deque<Asked<proto::Journal, Done>> journals;
  std::deque<Asked<proto::Manifest, Done>> manifests;
  std::deque<Asked<proto::History, Done>> histories;
  std::deque<Asked<proto::CheckpointName, proto::Manifest>> reads;

 private:
  template <typename Request, typename Response, typename Do>
  static void Finish(std::deque<Asked<Request, Response>>& asked,
                     const absl::Status& status, Do carry_out) {
    ASSERT_FALSE(asked.empty()) << "nothing was asked of the disk";
    Asked<Request, Response> oldest = std::move(asked.front());
    asked.pop_front();
    if (!status.ok()) return oldest.reply(status);
    oldest.reply(carry_out(oldest.request));
  }
};

// Shards that answer inside the call.
class QuickLinks : public ShardLinks {
 public:
  void SetAddress(uint32_t ps, const std::string& address) override {}
  void Send(uint32_t ps, const ShardRequest& request,
            Reply<ShardResponse> reply) override {
    std::visit(
        [&](const auto& typed) {
          using Method = ShardMethod<std::decay_t<decltype(typed)>>;
          told.push_back(absl::StrCat(Method::kName, StepOf(typed), "@", ps));
          reply(ShardResponse(AnswerTo(ps, typed)));
        },
        request);
  }

  // What was told to whom, in order.
  std::vector<std::string> told;

 private:
  static std::string StepOf(const proto::CommitRequest& commit) {
    return absl::StrCat(" ", commit.step());
  }
  static std::string StepOf(const proto::SaveRequest& save) {
    return absl::StrCat(" ", save.step());
  }
  template <typename Request>
  static std::string StepOf(const Request&) {
    return "";
  }
  static proto::AwaitSavedResponse AnswerTo(uint32_t ps,
                                            const proto::AwaitSavedRequest&) {
    proto::AwaitSavedResponse response;
    response.mutable_file()->set_name(absl::StrCat("ps", ps));
    return response;
  }
  template <typename Request>
  static typename ShardMethod<Request>::Response AnswerTo(uint32_t,
                                                          const Request&) {
    return {};
  }
};

// Seats, workers and weights of a Commit, over their divisor, as
// "0:worker0#3*0.25 ...".
inline std::string S(const proto::CommitRequest& commit) {
  std::vector<std::string> parts;
  for (const auto& c : commit.contributions()) {
    parts.push_back(absl::StrCat(c.seat(), ":", c.worker().job(),
                                 c.worker().index(), "#", c.sequence(), "*",
                                 c.weight() / commit.weight_divisor()));
  }
  return absl::StrJoin(parts, " ");
}

// "w" [2,3] and "b" [3], SGD with learning rate 0.1.
inline proto::Declaration MakeDeclaration(uint64_t total_steps = 10) {
  proto::Declaration declaration;
  const auto add = [&](const std::string& name,
                       const std::vector<int64_t>& shape) {
    proto::Variable& variable = *declaration.add_variables();
    variable.set_name(name);
    variable.mutable_shape()->Assign(shape.begin(), shape.end());
    variable.set_dtype(proto::FLOAT32);
    variable.mutable_initializer()->mutable_zeros();
  };
  add("w", {2, 3});
  add("b", {3});
  proto::Optimizer& optimizer = *declaration.add_optimizers();
  optimizer.set_learning_rate(0.1f);
  optimizer.mutable_sgd();
  declaration.mutable_consistency()->mutable_synchronous();
  declaration.set_total_steps(total_steps);
  return declaration;
}

inline proto::Declaration WithMode(uint32_t n, uint32_t m,
                                   uint64_t total_steps = 10) {
  proto::Declaration declaration = MakeDeclaration(total_steps);
  auto& mode = *declaration.mutable_consistency()->mutable_synchronous();
  mode.set_replicas_to_aggregate(n);
  mode.set_total_num_replicas(m);
  return declaration;
}

// Of `tickets` tickets, at most `depth` + 1 to a worker.
inline proto::Declaration Asynchronous(uint64_t tickets, uint32_t depth = 1) {
  proto::Declaration declaration = MakeDeclaration(tickets);
  declaration.mutable_consistency()->mutable_asynchronous()->set_pipeline_depth(
      depth);
  return declaration;
}

// Whose workers never get more than `bound` pushes ahead of the slowest.
inline proto::Declaration Bounded(uint32_t bound, uint64_t tickets = 100,
                                  uint32_t depth = 1) {
  proto::Declaration declaration = Asynchronous(tickets, depth);
  declaration.mutable_consistency()
      ->mutable_asynchronous()
      ->set_staleness_bound(bound);
  return declaration;
}

// Synchronous, with examples by ticket.
inline proto::Declaration ByTicket(uint32_t n, uint32_t m, uint64_t tickets) {
  proto::Declaration declaration = WithMode(n, m, (tickets + n - 1) / n);
  declaration.set_examples(proto::BY_TICKET);
  declaration.set_total_tickets(tickets);
  return declaration;
}

// A push that was applied by every shard.
inline proto::SpentTicket Spent(uint64_t sequence, uint64_t examples = 10,
                                double loss = 1, uint64_t staleness = 0) {
  proto::SpentTicket spent;
  spent.set_sequence(sequence);
  spent.set_examples(examples);
  spent.set_loss(loss);
  spent.set_staleness(staleness);
  return spent;
}

class CoordinatorTest : public ::testing::Test {
 protected:
  void Make(uint32_t num_ps = 2, uint32_t num_workers = 2,
            bool has_chief = false) {
    Coordinator::Options options;
    options.num_ps = num_ps;
    options.num_workers = num_workers;
    options.has_chief = has_chief;
    options.lease = kLease;
    options.start_timeout = absl::Seconds(60);
    options.step_timeout = absl::Seconds(100);
    options.recovery_timeout = recovery_timeout_;
    options.resend_after = kResendAfter;
    options.address = "host0:2000";
    options.shard_nonce = kShardNonce;
    options.receipt_secret = std::string(Receipts::kKeyBytes, 's');
    options.process = "host-of-ps0:77";
    options.date = [] { return absl::FromUnixSeconds(1700000000); };
    options_ = options;
    Begin();
  }
  // The same with a checkpoint directory.
  void MakeWithArchive(uint32_t num_ps = 2, uint32_t num_workers = 2) {
    archive_ = std::make_unique<PuppetArchive>();
    Make(num_ps, num_workers);
  }
  // The coordinator begins a life, on what its directory holds.
  void Begin() {
    incarnations_.clear();
    links_ = std::make_unique<PuppetLinks>();
    if (archive_ != nullptr) {
      options_.journal = archive_->journal;
      options_.history = archive_->history;
    }
    coordinator_ = std::make_unique<Coordinator>(options_, &clock_,
                                                 links_.get(), archive_.get());
  }

  // All of the following speak for tasks that have joined, in their
  // incarnation.
  proto::Sender SenderOf(const TaskId& task) {
    proto::Sender sender;
    sender.mutable_task()->set_job(task.job);
    sender.mutable_task()->set_index(task.index);
    sender.set_incarnation(incarnations_[task]);
    sender.set_generation(coordinator_->generation().value());
    return sender;
  }
  proto::RegisterRequest RegisterOf(const TaskId& task, uint64_t nonce = 1) {
    proto::RegisterRequest request;
    *request.mutable_sender() = SenderOf(task);
    request.mutable_sender()->clear_incarnation();
    request.mutable_sender()->clear_generation();
    request.set_nonce(nonce);
    request.set_protocol_version(kProtocolVersion);
    request.set_process(absl::StrCat("host-of-", task.job, task.index, ":77"));
    if (task.job == kPsJob) {
      request.set_address(absl::StrCat("host", task.index, ":2000"));
    } else {
      request.set_job_digest("j0b");
      request.set_data_digest("da7a");
    }
    request.set_num_ps(options_.num_ps);
    request.set_num_workers(options_.num_workers);
    request.set_wait_ms(absl::ToInt64Milliseconds(kMaxRegisterPark));
    return request;
  }
  template <typename Request, typename Response>
  Answer<Response> Ask(void (Coordinator::*method)(const Request&,
                                                   Reply<Response>),
                       const Request& request) {
    return holdfast::Ask(*coordinator_, method, request);
  }
  Answer<proto::RegisterResponse> Register(const TaskId& task,
                                           uint64_t nonce = 1) {
    return Ask(&Coordinator::Register, RegisterOf(task, nonce));
  }
  // Whether the answer is that the task is to ask again.
  static bool IsNotYet(const Answer<proto::RegisterResponse>& answer) {
    return answer.came() && answer.status().ok() &&
           answer->incarnation() == 0 && !answer->waiting_for().empty();
  }
  void Join(const TaskId& task, uint64_t nonce = 1) {
    const auto answer = Register(task, nonce);
    ASSERT_TRUE(answer.status().ok()) << answer.status();
    ASSERT_GT(answer->incarnation(), 0u) << answer->waiting_for();
    incarnations_[task] = answer->incarnation();
  }
  // Of a task that knows all, and waits for news.
  Answer<proto::RenewLeaseResponse> Renew(const TaskId& task,
                                          uint64_t wait_ms = 0) {
    proto::RenewLeaseRequest request;
    *request.mutable_sender() = SenderOf(task);
    request.set_known_phase(state().phase());
    request.set_wait_ms(wait_ms);
    return Ask(&Coordinator::RenewLease, request);
  }
  Answer<proto::DeclareResponse> Declare(
      const proto::Declaration& declaration = MakeDeclaration(),
      const TaskId& task = Worker(0)) {
    proto::DeclareRequest request;
    *request.mutable_sender() = SenderOf(task);
    *request.mutable_declaration() = declaration;
    return Ask(&Coordinator::Declare, request);
  }
  Answer<proto::GetPlacementResponse> GetPlacement(uint64_t wait_ms) {
    proto::GetPlacementRequest request;
    *request.mutable_sender() = SenderOf(Worker(0));
    request.set_wait_ms(wait_ms);
    return Ask(&Coordinator::GetPlacement, request);
  }
  Answer<proto::LeaveResponse> Leave(const TaskId& task,
                                     const std::string& error = "") {
    proto::LeaveRequest request;
    *request.mutable_sender() = SenderOf(task);
    request.set_error(error);
    return Ask(&Coordinator::Leave, request);
  }
  proto::GetStatusResponse Status() {
    return *Ask(&Coordinator::GetStatus, proto::GetStatusRequest());
  }

  // As the shards give them; none where the variables are not there. Inside an
  // answer, where no other comes, the placement is the one that was seen last.
  std::optional<Receipts> ReceiptsNow() {
    if (const auto seen = GetPlacement(0); seen.came()) placement_ = *seen;
    if (!placement_.ready()) return std::nullopt;
    return Receipts(
        Receipts::MakeKey(options_.receipt_secret, coordinator_->generation()),
        coordinator_->generation(), placement_.declaration(),
        placement_.slices(), options_.num_ps);
  }
  // With the receipts of an honest worker.
  proto::ContributeRequest Signed(proto::ContributeRequest request) {
    request.clear_receipts();
    const std::optional<Receipts> receipts = ReceiptsNow();
    if (!receipts.has_value()) return request;
    const PushId push{ToWorkerLife(request.sender()),
                      PushSequence(request.sequence())};
    for (uint32_t ps = 0; ps < options_.num_ps; ++ps) {
      request.add_receipts(
          receipts->Held(ps, push, GlobalStep(request.step())));
    }
    return request;
  }
  proto::TakeTicketRequest Signed(proto::TakeTicketRequest request) {
    const std::optional<Receipts> receipts = ReceiptsNow();
    if (!receipts.has_value()) return request;
    for (proto::SpentTicket& spent : *request.mutable_spent()) {
      const PushId push{ToWorkerLife(request.sender()),
                        PushSequence(spent.sequence())};
      spent.clear_receipts();
      for (uint32_t ps = 0; ps < options_.num_ps; ++ps) {
        spent.add_receipts(receipts->Applied(ps, push));
      }
    }
    return request;
  }

  // An offer of `examples` with loss 1.
  proto::ContributeRequest OfferOf(const TaskId& task, uint64_t step,
                                   uint32_t seat, uint64_t sequence,
                                   uint64_t examples = 10) {
    proto::ContributeRequest request;
    *request.mutable_sender() = SenderOf(task);
    request.set_step(step);
    request.set_seat(seat);
    request.set_sequence(sequence);
    request.set_examples(examples);
    request.set_loss(1);
    request.set_wait_ms(1000);
    return Signed(request);
  }
  // As it is, but with the right receipts.
  Answer<proto::ContributeResponse> Contribute(
      const proto::ContributeRequest& request) {
    return Ask(&Coordinator::Contribute, Signed(request));
  }
  Answer<proto::ContributeResponse> Offer(const TaskId& task, uint64_t step,
                                          uint32_t seat, uint64_t sequence,
                                          uint64_t examples = 10) {
    return Contribute(OfferOf(task, step, seat, sequence, examples));
  }

  // Asks for the ticket of a push, and tells which of those before are spent.
  proto::TakeTicketRequest TakeOf(
      const TaskId& task, uint64_t sequence,
      const std::vector<proto::SpentTicket>& spent = {}) {
    proto::TakeTicketRequest request;
    *request.mutable_sender() = SenderOf(task);
    request.set_sequence(sequence);
    for (const proto::SpentTicket& s : spent) *request.add_spent() = s;
    request.set_wait_ms(1000);
    return Signed(request);
  }
  // As it is, but with the right receipts.
  Answer<proto::TakeTicketResponse> Take(
      const proto::TakeTicketRequest& request) {
    return Ask(&Coordinator::TakeTicket, Signed(request));
  }
  Answer<proto::TakeTicketResponse> Take(
      const TaskId& task, uint64_t sequence,
      const std::vector<proto::SpentTicket>& spent = {}) {
    return Take(TakeOf(task, sequence, spent));
  }
  // Tells that push `sequence` of the task is applied.
  Answer<proto::TakeTicketResponse> Book(const TaskId& task,
                                         uint64_t sequence) {
    return Take(task, 0, {Spent(sequence)});
  }
  // The index of the ticket that came.
  static uint64_t Index(const Answer<proto::TakeTicketResponse>& answer) {
    EXPECT_TRUE(answer->has_ticket());
    return answer->ticket().index();
  }
  // Whether an answer came that brings no ticket.
  static bool Empty(const Answer<proto::TakeTicketResponse>& answer) {
    return answer.came() && answer.status().ok() && !answer->has_ticket();
  }

  // Workers 0 and 1 fill the two seats of `step`, each with push step + 1.
  void OfferBoth(uint64_t step) {
    Offer(Worker(0), step, 0, step + 1);
    Offer(Worker(1), step, 1, step + 1);
  }
  // The i-th Commit that waits for an answer.
  proto::CommitRequest Commit(size_t i = 0) const {
    if (i < links_->commits.size()) return links_->commits[i].request;
    ADD_FAILURE() << "no such Commit was sent";
    return proto::CommitRequest();
  }
  void AckCommits() { PuppetLinks::AnswerAll(links_->commits); }
  // Every shard takes its share of the checkpoint, and writes it.
  void FinishSave() {
    PuppetLinks::AnswerAll(links_->saves);
    while (!links_->awaits.empty()) AnswerWritten(links_->awaits.front().ps);
  }
  void AnswerWritten(uint32_t ps) {
    proto::AwaitSavedResponse written;
    written.mutable_file()->set_name(absl::StrCat("ps", ps));
    PuppetLinks::Answer(links_->awaits, ps, absl::OkStatus(), written);
  }
  void AckEnds() { PuppetLinks::AnswerAll(links_->ends); }

  std::vector<TaskId> AllTasks() const {
    std::vector<TaskId> tasks;
    for (uint32_t ps = 1; ps < options_.num_ps; ++ps) tasks.push_back(Ps(ps));
    uint32_t workers = options_.num_workers;
    if (options_.has_chief) {
      tasks.push_back(Chief());
      --workers;
    }
    for (uint32_t w = 0; w < workers; ++w) tasks.push_back(Worker(w));
    return tasks;
  }
  std::vector<TaskId> AllBut(const TaskId& silent) const {
    std::vector<TaskId> tasks;
    for (const TaskId& task : AllTasks()) {
      if (task != silent) tasks.push_back(task);
    }
    return tasks;
  }
  // To the opening of step 0: all have joined, the variables are made.
  void StartTraining(
      const proto::Declaration& declaration = MakeDeclaration()) {
    if (coordinator_ == nullptr) Make();
    for (const TaskId& task : AllTasks()) Join(task);
    const auto declared =
        Declare(declaration, options_.has_chief ? Chief() : Worker(0));
    ASSERT_TRUE(declared.status().ok()) << declared.status();
    PuppetLinks::AnswerAll(links_->restores);
    ASSERT_EQ(state().phase(), proto::TRAINING);
  }
  // All steps of a job of two workers are committed.
  void TrainToTheEnd(uint64_t total_steps = 2) {
    StartTraining(MakeDeclaration(total_steps));
    for (uint64_t step = 0; step < total_steps; ++step) {
      OfferBoth(step);
      AckCommits();
    }
    ASSERT_EQ(state().phase(), proto::DONE);
  }

  void Advance(absl::Duration time) { clock_.Advance(time); }
  void Tick() { coordinator_->Tick(); }
  // Lets time pass with ticks, in which `tasks` renew their leases.
  void Pass(absl::Duration time, const std::vector<TaskId>& tasks) {
    const absl::Duration kTick = absl::Milliseconds(250);
    for (; time > absl::ZeroDuration(); time -= kTick) {
      Advance(std::min(time, kTick));
      for (const TaskId& task : tasks) Renew(task);
      Tick();
    }
  }
  const proto::JobState& state() const { return coordinator_->state(); }

  FakeClock clock_;
  absl::Duration recovery_timeout_ = absl::Seconds(300);
  std::unique_ptr<PuppetArchive> archive_;
  Coordinator::Options options_;
  std::map<TaskId, uint64_t> incarnations_;
  proto::GetPlacementResponse placement_;
  std::unique_ptr<PuppetLinks> links_;
  std::unique_ptr<Coordinator> coordinator_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_COORDINATOR_TESTING_H_
