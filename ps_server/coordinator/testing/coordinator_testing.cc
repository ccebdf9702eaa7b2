// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/testing/coordinator_testing.h"

#include <algorithm>
#include <type_traits>
#include <variant>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/process/version.h"
#include "common/rpc/rpc_limits.h"
#include "ps_server/coordinator/coordinator.h"
#include "ps_server/protocol/receipts.h"
#include "ps_server/protocol/request.h"

namespace holdfast {

// ---- PuppetLinks ----

PuppetLinks::PuppetLinks() = default;
PuppetLinks::~PuppetLinks() = default;

void PuppetLinks::SetAddress(uint32_t ps, const std::string& address) {
  addresses.emplace_back(ps, address);
}

void PuppetLinks::Send(uint32_t ps, const ShardRequest& request,
                       Reply<ShardResponse> reply) {
  std::visit(
      [&](const auto& typed) {
        using Request = std::decay_t<decltype(typed)>;
        QueueOf(typed).push_back(
            {ps, typed, OfMethod<Request>(std::move(reply))});
      },
      request);
}

template <typename Request, typename Response>
void PuppetLinks::Answer(Messages<Request, Response>& messages, uint32_t ps,
                         const absl::Status& status, const Response& response) {
  for (auto it = messages.begin(); it != messages.end(); ++it) {
    if (it->ps != ps) continue;
    Reply<Response> reply = std::move(it->reply);
    messages.erase(it);
    if (status.ok()) return reply(response);
    return reply(status);
  }
  ADD_FAILURE() << "nothing was sent to ps " << ps;
}

template <typename Request, typename Response>
void PuppetLinks::AnswerAll(Messages<Request, Response>& messages) {
  while (!messages.empty()) Answer(messages, messages.front().ps);
}

template <typename Request, typename Response>
std::vector<uint32_t> PuppetLinks::To(
    const Messages<Request, Response>& messages) {
  std::vector<uint32_t> to;
  for (const auto& message : messages) to.push_back(message.ps);
  return to;
}

#define HOLDFAST_PUPPET_MESSAGE(Name)                                   \
  template void PuppetLinks::Answer(                                    \
      Messages<proto::Name##Request, proto::Name##Response>&, uint32_t, \
      const absl::Status&, const proto::Name##Response&);               \
  template void PuppetLinks::AnswerAll(                                 \
      Messages<proto::Name##Request, proto::Name##Response>&);          \
  template std::vector<uint32_t> PuppetLinks::To(                       \
      const Messages<proto::Name##Request, proto::Name##Response>&)
HOLDFAST_PUPPET_MESSAGE(Restore);
HOLDFAST_PUPPET_MESSAGE(Commit);
HOLDFAST_PUPPET_MESSAGE(Fence);
HOLDFAST_PUPPET_MESSAGE(Resolve);
HOLDFAST_PUPPET_MESSAGE(Hold);
HOLDFAST_PUPPET_MESSAGE(Save);
HOLDFAST_PUPPET_MESSAGE(AwaitSaved);
HOLDFAST_PUPPET_MESSAGE(End);
#undef HOLDFAST_PUPPET_MESSAGE

// ---- PuppetArchive ----

namespace {

template <typename Request, typename Response, typename Do>
void Finish(std::deque<PuppetArchive::Asked<Request, Response>>& asked,
            const absl::Status& status, Do carry_out) {
  ASSERT_FALSE(asked.empty()) << "nothing was asked of the disk";
  PuppetArchive::Asked<Request, Response> oldest = std::move(asked.front());
  asked.pop_front();
  if (!status.ok()) return oldest.reply(status);
  oldest.reply(carry_out(oldest.request));
}

}  // namespace

PuppetArchive::PuppetArchive() { journal.set_directory_nonce(4711); }
PuppetArchive::~PuppetArchive() = default;

void PuppetArchive::WriteJournal(const proto::Journal& request,
                                 Reply<Done> reply) {
  journals.push_back({request, std::move(reply)});
  if (quick) AnswerJournal();
}

void PuppetArchive::WriteManifest(const proto::Manifest& request,
                                  Reply<Done> reply) {
  manifests.push_back({request, std::move(reply)});
  if (quick) AnswerManifest();
}

void PuppetArchive::WriteHistory(proto::History request, Reply<Done> reply) {
  histories.push_back({std::move(request), std::move(reply)});
  if (quick) AnswerHistory(history_status);
}

void PuppetArchive::ReadManifest(const proto::CheckpointName& request,
                                 Reply<proto::Manifest> reply) {
  reads.push_back({request, std::move(reply)});
  if (quick) AnswerRead();
}

void PuppetArchive::SetAside(const proto::CheckpointName& name) {
  set_aside.push_back(Name(name));
}

void PuppetArchive::KeepBest(const proto::CheckpointName& name,
                             Reply<Done> reply) {
  if (!best_status.ok()) return reply(best_status);
  best.insert(Name(name));
  reply(Done());
}

void PuppetArchive::RemoveOthersOfBest() {
  std::set<std::string> kept;
  for (const proto::CheckpointName& name : journal.best()) {
    if (best.count(Name(name)) > 0) kept.insert(Name(name));
  }
  best = kept;
}

void PuppetArchive::RemoveOthers(const proto::CheckpointName* under_way) {
  removals.push_back(under_way == nullptr ? "" : Name(*under_way));
}

void PuppetArchive::AnswerJournal(const absl::Status& status) {
  Finish(journals, status, [this](const proto::Journal& written) {
    journal = written;
    return Done();
  });
}

void PuppetArchive::AnswerManifest(const absl::Status& status) {
  Finish(manifests, status, [this](const proto::Manifest& written) {
    complete[Name(written.name())] = written;
    return Done();
  });
}

void PuppetArchive::AnswerHistory(const absl::Status& status) {
  Finish(histories, status, [this](const proto::History& written) {
    history = written;
    return Done();
  });
}

void PuppetArchive::AnswerRead(const absl::Status& status) {
  Finish(reads, status,
         [this](const proto::CheckpointName& name)
             -> absl::StatusOr<proto::Manifest> {
           const auto found = complete.find(Name(name));
           if (found != complete.end()) return found->second;
           return absl::NotFoundError(Name(name));
         });
}

std::string PuppetArchive::Name(const proto::CheckpointName& name) {
  return absl::StrCat(name.generation(), "/", name.step());
}

std::string PuppetArchive::Checkpoints() const {
  std::vector<std::string> names;
  for (const auto& name : journal.checkpoints()) names.push_back(Name(name));
  return absl::StrJoin(names, " ");
}

// ---- QuickLinks ----

namespace {

std::string StepOf(const proto::CommitRequest& commit) {
  return absl::StrCat(" ", commit.step());
}
std::string StepOf(const proto::SaveRequest& save) {
  return absl::StrCat(" ", save.step());
}
template <typename Request>
std::string StepOf(const Request&) {
  return "";
}
proto::AwaitSavedResponse AnswerTo(uint32_t ps,
                                   const proto::AwaitSavedRequest&) {
  proto::AwaitSavedResponse response;
  response.mutable_file()->set_name(absl::StrCat("ps", ps));
  return response;
}
template <typename Request>
typename ShardMethod<Request>::Response AnswerTo(uint32_t, const Request&) {
  return {};
}

}  // namespace

void QuickLinks::Send(uint32_t ps, const ShardRequest& request,
                      Reply<ShardResponse> reply) {
  std::visit(
      [&](const auto& typed) {
        using Method = ShardMethod<std::decay_t<decltype(typed)>>;
        told.push_back(absl::StrCat(Method::kName, StepOf(typed), "@", ps));
        reply(ShardResponse(AnswerTo(ps, typed)));
      },
      request);
}

// ---- Declarations and messages ----

std::string S(const proto::CommitRequest& commit) {
  std::vector<std::string> parts;
  for (const auto& c : commit.contributions()) {
    parts.push_back(absl::StrCat(c.seat(), ":", c.worker().job(),
                                 c.worker().index(), "#", c.sequence(), "*",
                                 c.weight() / commit.weight_divisor()));
  }
  return absl::StrJoin(parts, " ");
}

proto::Declaration MakeDeclaration(uint64_t total_steps) {
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

proto::Declaration WithMode(uint32_t n, uint32_t m, uint64_t total_steps) {
  proto::Declaration declaration = MakeDeclaration(total_steps);
  auto& mode = *declaration.mutable_consistency()->mutable_synchronous();
  mode.set_replicas_to_aggregate(n);
  mode.set_total_num_replicas(m);
  return declaration;
}

proto::Declaration Asynchronous(uint64_t tickets, uint32_t depth) {
  proto::Declaration declaration = MakeDeclaration(tickets);
  declaration.mutable_consistency()->mutable_asynchronous()->set_pipeline_depth(
      depth);
  return declaration;
}

proto::Declaration Bounded(uint32_t bound, uint64_t tickets, uint32_t depth) {
  proto::Declaration declaration = Asynchronous(tickets, depth);
  declaration.mutable_consistency()
      ->mutable_asynchronous()
      ->set_staleness_bound(bound);
  return declaration;
}

proto::Declaration ByTicket(uint32_t n, uint32_t m, uint64_t tickets) {
  proto::Declaration declaration = WithMode(n, m, (tickets + n - 1) / n);
  declaration.set_examples(proto::BY_TICKET);
  declaration.set_total_tickets(tickets);
  return declaration;
}

proto::SpentTicket Spent(uint64_t sequence, uint64_t examples, double loss,
                         uint64_t staleness) {
  proto::SpentTicket spent;
  spent.set_sequence(sequence);
  spent.set_examples(examples);
  spent.set_loss(loss);
  spent.set_staleness(staleness);
  return spent;
}

// ---- CoordinatorTest ----

CoordinatorTest::CoordinatorTest() = default;
CoordinatorTest::~CoordinatorTest() = default;

void CoordinatorTest::Make(uint32_t num_ps, uint32_t num_workers,
                           bool has_chief) {
  CoordinatorOptions options;
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

void CoordinatorTest::MakeWithArchive(uint32_t num_ps, uint32_t num_workers) {
  archive_ = std::make_unique<PuppetArchive>();
  Make(num_ps, num_workers);
}

void CoordinatorTest::Begin() {
  links_ = std::make_unique<PuppetLinks>();
  Begin(links_.get());
}

void CoordinatorTest::Begin(ShardLinks* links) {
  incarnations_.clear();
  if (archive_ != nullptr) {
    options_.journal = archive_->journal;
    options_.history = archive_->history;
  }
  coordinator_ =
      std::make_unique<Coordinator>(options_, &clock_, links, archive_.get());
}

proto::Sender CoordinatorTest::SenderOf(const TaskId& task) {
  proto::Sender sender;
  sender.mutable_task()->set_job(task.job);
  sender.mutable_task()->set_index(task.index);
  sender.set_incarnation(incarnations_[task]);
  sender.set_generation(generation().value());
  return sender;
}

proto::RegisterRequest CoordinatorTest::RegisterOf(const TaskId& task,
                                                   uint64_t nonce) {
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

Answer<proto::RegisterResponse> CoordinatorTest::Ask(
    const proto::RegisterRequest& request) {
  return holdfast::Ask(*coordinator_, &Coordinator::Register, request);
}

Answer<proto::RenewLeaseResponse> CoordinatorTest::Ask(
    const proto::RenewLeaseRequest& request) {
  return holdfast::Ask(*coordinator_, &Coordinator::RenewLease, request);
}

Answer<proto::DeclareResponse> CoordinatorTest::Ask(
    const proto::DeclareRequest& request) {
  return holdfast::Ask(*coordinator_, &Coordinator::Declare, request);
}

Answer<proto::GetPlacementResponse> CoordinatorTest::Ask(
    const proto::GetPlacementRequest& request) {
  return holdfast::Ask(*coordinator_, &Coordinator::GetPlacement, request);
}

Answer<proto::ContributeResponse> CoordinatorTest::Ask(
    const proto::ContributeRequest& request) {
  return holdfast::Ask(*coordinator_, &Coordinator::Contribute, request);
}

Answer<proto::TakeTicketResponse> CoordinatorTest::Ask(
    const proto::TakeTicketRequest& request) {
  return holdfast::Ask(*coordinator_, &Coordinator::TakeTicket, request);
}

Answer<proto::ReportEvaluationResponse> CoordinatorTest::Ask(
    const proto::ReportEvaluationRequest& request) {
  return holdfast::Ask(*coordinator_, &Coordinator::ReportEvaluation, request);
}

Answer<proto::LeaveResponse> CoordinatorTest::Ask(
    const proto::LeaveRequest& request) {
  return holdfast::Ask(*coordinator_, &Coordinator::Leave, request);
}

Answer<proto::GetStatusResponse> CoordinatorTest::Ask(
    const proto::GetStatusRequest& request) {
  return holdfast::Ask(*coordinator_, &Coordinator::GetStatus, request);
}

Answer<proto::GetEventsResponse> CoordinatorTest::Ask(
    const proto::GetEventsRequest& request) {
  return holdfast::Ask(*coordinator_, &Coordinator::GetEvents, request);
}

Answer<proto::GetHistoryResponse> CoordinatorTest::Ask(
    const proto::GetHistoryRequest& request) {
  return holdfast::Ask(*coordinator_, &Coordinator::GetHistory, request);
}

Answer<proto::CheckpointResponse> CoordinatorTest::Ask(
    const proto::CheckpointRequest& request) {
  return holdfast::Ask(*coordinator_, &Coordinator::Checkpoint, request);
}

void CoordinatorTest::Send(const proto::RegisterRequest& request,
                           Reply<proto::RegisterResponse> reply) {
  coordinator_->Register(request, std::move(reply));
}

void CoordinatorTest::Send(const proto::ContributeRequest& request,
                           Reply<proto::ContributeResponse> reply) {
  coordinator_->Contribute(request, std::move(reply));
}

void CoordinatorTest::Send(const proto::TakeTicketRequest& request,
                           Reply<proto::TakeTicketResponse> reply) {
  coordinator_->TakeTicket(request, std::move(reply));
}

Answer<proto::RegisterResponse> CoordinatorTest::Register(const TaskId& task,
                                                          uint64_t nonce) {
  return Ask(RegisterOf(task, nonce));
}

bool CoordinatorTest::IsNotYet(const Answer<proto::RegisterResponse>& answer) {
  return answer.came() && answer.status().ok() && answer->incarnation() == 0 &&
         !answer->waiting_for().empty();
}

void CoordinatorTest::Join(const TaskId& task, uint64_t nonce) {
  const auto answer = Register(task, nonce);
  ASSERT_TRUE(answer.status().ok()) << answer.status();
  ASSERT_GT(answer->incarnation(), 0u) << answer->waiting_for();
  incarnations_[task] = answer->incarnation();
}

Answer<proto::RenewLeaseResponse> CoordinatorTest::Renew(const TaskId& task,
                                                         uint64_t wait_ms) {
  proto::RenewLeaseRequest request;
  *request.mutable_sender() = SenderOf(task);
  request.set_known_phase(state().phase());
  request.set_wait_ms(wait_ms);
  return Ask(request);
}

Answer<proto::DeclareResponse> CoordinatorTest::Declare(
    const proto::Declaration& declaration, const TaskId& task) {
  proto::DeclareRequest request;
  *request.mutable_sender() = SenderOf(task);
  *request.mutable_declaration() = declaration;
  return Ask(request);
}

Answer<proto::GetPlacementResponse> CoordinatorTest::GetPlacement(
    uint64_t wait_ms) {
  proto::GetPlacementRequest request;
  *request.mutable_sender() = SenderOf(Worker(0));
  request.set_wait_ms(wait_ms);
  return Ask(request);
}

Answer<proto::LeaveResponse> CoordinatorTest::Leave(const TaskId& task,
                                                    const std::string& error) {
  proto::LeaveRequest request;
  *request.mutable_sender() = SenderOf(task);
  request.set_error(error);
  return Ask(request);
}

proto::GetStatusResponse CoordinatorTest::Status() {
  return *Ask(proto::GetStatusRequest());
}

std::optional<Receipts> CoordinatorTest::ReceiptsNow() {
  if (const auto seen = GetPlacement(0); seen.came()) placement_ = *seen;
  if (!placement_.ready()) return std::nullopt;
  return Receipts(
      Receipts::MakeKey(options_.receipt_secret, coordinator_->generation()),
      coordinator_->generation(), placement_.declaration(), placement_.slices(),
      options_.num_ps);
}

proto::ContributeRequest CoordinatorTest::Signed(
    proto::ContributeRequest request) {
  request.clear_receipts();
  const std::optional<Receipts> receipts = ReceiptsNow();
  if (!receipts.has_value()) return request;
  const PushId push{ToWorkerLife(request.sender()),
                    PushSequence(request.sequence())};
  for (uint32_t ps = 0; ps < options_.num_ps; ++ps) {
    request.add_receipts(receipts->Held(ps, push, GlobalStep(request.step())));
  }
  return request;
}

proto::TakeTicketRequest CoordinatorTest::Signed(
    proto::TakeTicketRequest request) {
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

proto::ContributeRequest CoordinatorTest::OfferOf(const TaskId& task,
                                                  uint64_t step, uint32_t seat,
                                                  uint64_t sequence,
                                                  uint64_t examples) {
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

Answer<proto::ContributeResponse> CoordinatorTest::Contribute(
    const proto::ContributeRequest& request) {
  return Ask(Signed(request));
}

Answer<proto::ContributeResponse> CoordinatorTest::Offer(const TaskId& task,
                                                         uint64_t step,
                                                         uint32_t seat,
                                                         uint64_t sequence,
                                                         uint64_t examples) {
  return Contribute(OfferOf(task, step, seat, sequence, examples));
}

proto::TakeTicketRequest CoordinatorTest::TakeOf(
    const TaskId& task, uint64_t sequence,
    const std::vector<proto::SpentTicket>& spent) {
  proto::TakeTicketRequest request;
  *request.mutable_sender() = SenderOf(task);
  request.set_sequence(sequence);
  for (const proto::SpentTicket& s : spent) *request.add_spent() = s;
  request.set_wait_ms(1000);
  return Signed(request);
}

Answer<proto::TakeTicketResponse> CoordinatorTest::Take(
    const proto::TakeTicketRequest& request) {
  return Ask(Signed(request));
}

Answer<proto::TakeTicketResponse> CoordinatorTest::Take(
    const TaskId& task, uint64_t sequence,
    const std::vector<proto::SpentTicket>& spent) {
  return Take(TakeOf(task, sequence, spent));
}

Answer<proto::TakeTicketResponse> CoordinatorTest::Book(const TaskId& task,
                                                        uint64_t sequence) {
  return Take(task, 0, {Spent(sequence)});
}

uint64_t CoordinatorTest::Index(
    const Answer<proto::TakeTicketResponse>& answer) {
  EXPECT_TRUE(answer->has_ticket());
  return answer->ticket().index();
}

bool CoordinatorTest::Empty(const Answer<proto::TakeTicketResponse>& answer) {
  return answer.came() && answer.status().ok() && !answer->has_ticket();
}

void CoordinatorTest::OfferBoth(uint64_t step) {
  Offer(Worker(0), step, 0, step + 1);
  Offer(Worker(1), step, 1, step + 1);
}

proto::CommitRequest CoordinatorTest::Commit(size_t i) const {
  if (i < links_->commits.size()) return links_->commits[i].request;
  ADD_FAILURE() << "no such Commit was sent";
  return proto::CommitRequest();
}

void CoordinatorTest::AckCommits() { PuppetLinks::AnswerAll(links_->commits); }

void CoordinatorTest::FinishSave() {
  PuppetLinks::AnswerAll(links_->saves);
  while (!links_->awaits.empty()) AnswerWritten(links_->awaits.front().ps);
}

void CoordinatorTest::AnswerWritten(uint32_t ps) {
  proto::AwaitSavedResponse written;
  written.mutable_file()->set_name(absl::StrCat("ps", ps));
  PuppetLinks::Answer(links_->awaits, ps, absl::OkStatus(), written);
}

void CoordinatorTest::AckEnds() { PuppetLinks::AnswerAll(links_->ends); }

std::vector<TaskId> CoordinatorTest::AllTasks() const {
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

std::vector<TaskId> CoordinatorTest::AllBut(const TaskId& silent) const {
  std::vector<TaskId> tasks;
  for (const TaskId& task : AllTasks()) {
    if (task != silent) tasks.push_back(task);
  }
  return tasks;
}

void CoordinatorTest::StartTraining(const proto::Declaration& declaration) {
  if (coordinator_ == nullptr) Make();
  for (const TaskId& task : AllTasks()) Join(task);
  const auto declared =
      Declare(declaration, options_.has_chief ? Chief() : Worker(0));
  ASSERT_TRUE(declared.status().ok()) << declared.status();
  PuppetLinks::AnswerAll(links_->restores);
  ASSERT_EQ(state().phase(), proto::TRAINING);
}

void CoordinatorTest::TrainToTheEnd(uint64_t total_steps) {
  StartTraining(MakeDeclaration(total_steps));
  for (uint64_t step = 0; step < total_steps; ++step) {
    OfferBoth(step);
    AckCommits();
  }
  ASSERT_EQ(state().phase(), proto::DONE);
}

void CoordinatorTest::Advance(absl::Duration time) { clock_.Advance(time); }

void CoordinatorTest::Tick() { coordinator_->Tick(); }

void CoordinatorTest::Pass(absl::Duration time,
                           const std::vector<TaskId>& tasks) {
  const absl::Duration kTick = absl::Milliseconds(250);
  for (; time > absl::ZeroDuration(); time -= kTick) {
    Advance(std::min(time, kTick));
    for (const TaskId& task : tasks) Renew(task);
    Tick();
  }
}

void CoordinatorTest::Fail(const std::string& reason) {
  coordinator_->Fail(reason);
}

void CoordinatorTest::OnOwnReport(const proto::PsReport& report) {
  coordinator_->OnOwnReport(report);
}

void CoordinatorTest::OnToldToStop(const std::string& reason) {
  coordinator_->OnToldToStop(reason);
}

Generation CoordinatorTest::generation() const {
  return coordinator_->generation();
}

const EventLog& CoordinatorTest::events() const {
  return coordinator_->events();
}

bool CoordinatorTest::finished() const { return coordinator_->finished(); }

const proto::JobState& CoordinatorTest::state() const {
  return coordinator_->state();
}

}  // namespace holdfast
