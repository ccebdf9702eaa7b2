// SPDX-License-Identifier: Apache-2.0
#include "tests/world/client_worker.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/client.h"
#include "common/job/job_phase.h"
#include "common/job/task_id.h"
#include "common/rpc/session_news.h"
#include "tests/world/client_transport.h"
#include "tests/world/job.h"
#include "tests/world/session.h"

namespace holdfast::sim {
namespace {

// The pause before something that was refused or broken off is retried.
constexpr absl::Duration kRetryAfter = absl::Milliseconds(50);
// How long a worker waits for the last version. It leaves even if it does not
// get it.
constexpr absl::Duration kLastVersion = absl::Seconds(30);

class ClientWorker : public WorkerProgram {
 public:
  ClientWorker(World* world, Process process, uint32_t index, uint64_t nonce)
      : world_(world),
        process_(process),
        index_(index),
        node_(World::NodesOf(process).front()),
        session_(
            world, node_, RegisterRequestOf(*world, kWorkerJob, index, nonce),
            {[this](const proto::Sender&) { OnSender(); },
             [this](const proto::RenewLeaseResponse& news) { OnNews(news); },
             // The worker is fenced, or too late: its supervisor starts
             // another.
             [this](const absl::Status& status) {
               if (!absl::IsAborted(status)) Complain("is refused", status);
               world_->Exit(process_, /*for_good=*/false);
             }}),
        transport_(world, node_, nonce, [this] { Advance(); }),
        client_(OptionsOf(*world, index), &transport_),
        slots_(NumSlots()) {
    news_.sender = session_.sender();
    news_.state.set_phase(proto::STARTING);
  }

  void Start() override { session_.Start(); }
  void StepDown() override {
    steps_down_ = true;
    Leave();
  }
  const proto::Sender& sender() const override { return session_.sender(); }

 private:
  // A push under way, and the memory that is lent to it.
  struct Slot {
    uint64_t generation = 0;
    PushId id;
    Values gradient;
    // The rows of the table, as they are pushed.
    std::vector<uint64_t> row_ids;
    std::vector<float> rows;
    std::unique_ptr<Cluster::Push> push;
  };

  static client::Client::Options OptionsOf(const World& world, uint32_t index) {
    client::Client::Options options;
    options.task = {kWorkerJob, index};
    options.timing.park = world.job().park;
    if (world.job().cuts_pushes) options.part_bytes = sizeof(float);
    if (world.job().lends) options.min_lent_bytes = 2 * sizeof(float);
    for (uint32_t ps = 0; ps < world.num_ps(); ++ps) {
      options.ps_names.push_back(absl::StrCat("/job:ps/task:", ps));
    }
    return options;
  }
  const Job& job() const { return world_->job(); }
  uint32_t depth() const {
    return std::max(
        1u, job().declaration.consistency().asynchronous().pipeline_depth());
  }
  // The number of pushes under way at a time: in asynchronous jobs, the depth
  // of the pipeline; in jobs by step, the seats of the worker, which are every
  // M-th from its index.
  size_t NumSlots() const {
    if (job().asynchronous()) return depth();
    if (job().by_ticket() || job().n() <= job().m()) return 1;
    return (job().n() - index_ + job().m() - 1) / job().m();
  }
  absl::Time Now() const { return world_->Now(); }
  void Complain(const std::string& what, const absl::Status& status) {
    world_->Violate(
        absl::StrCat("worker ", index_, " ", what, ": ", status.ToString()));
  }

  // ---- The session ----

  void OnSender() {
    news_.sender = session_.sender();
    client_.Hear(news_);
    if (leaving_) return Leave();
    if (!std::exchange(begun_, true)) Begin();
    if (has_all_ && client_.rolled_back()) BeginAgain();
    Advance();
  }

  void OnNews(const proto::RenewLeaseResponse& news) {
    news_.sender = session_.sender();
    news_.state = news.state();
    news_.durable_step = news.durable_step();
    if (news.state().phase() == proto::FAILED) {
      return world_->Exit(process_, /*for_good=*/true);
    }
    client_.Hear(news_);
    if (!leaving_ && news.state().phase() == proto::DONE) OnDone();
    if (!leaving_ && news.state().phase() == proto::STOPPED) Leave();
    Advance();
  }

  void OnDone() {
    // A newcomer has nothing to wait for.
    if (has_all_ || !has_variables_) return Finish();
    if (std::exchange(ends_, true)) return;
    world_->After(node_, kLastVersion, [this] {
      if (!leaving_) Leave();
    });
  }

  void Leave() {
    leaving_ = true;
    Drop();
    proto::LeaveRequest request;
    *request.mutable_sender() = session_.sender();
    world_->Call<proto::LeaveRequest>(
        node_, kCoordinator, request,
        [this](const absl::StatusOr<proto::LeaveResponse>& response) {
          const absl::Status& status = response.status();
          if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) {
            return world_->After(node_, kRetryAfter, [this] { Leave(); });
          }
          // The session hears what has happened in the meantime.
          if (absl::IsAborted(status) || absl::IsNotFound(status)) return;
          world_->Exit(process_,
                       !steps_down_ || IsOrderlyEnd(news_.state.phase()));
        });
  }

  bool is_done() const { return news_.state.phase() == proto::DONE; }

  // ---- What is under way ----

  // Calls `then` once `handle` is done.
  void When(const Cluster::Handle& handle, std::function<void()> then) {
    waits_.push_back({&handle, std::move(then)});
  }

  void Advance() {
    if (std::exchange(advancing_, true)) return;
    for (;;) {
      const auto done =
          std::find_if(waits_.begin(), waits_.end(),
                       [](const auto& wait) { return wait.first->done(); });
      if (done == waits_.end()) break;
      const std::function<void()> then = std::move(done->second);
      waits_.erase(done);
      then();
    }
    advancing_ = false;
  }

  void Drop() {
    waits_.clear();
    for (Slot& slot : slots_) slot.push.reset();
    early_.reset();
    arrival_.reset();
    report_.reset();
    reading_.reset();
    pin_.reset();
    pin_request_.reset();
    pull_.reset();
    request_.reset();
    giving_.reset();
    variables_.reset();
    declare_.reset();
    ticket_.reset();
    has_all_ = false;
    has_variables_ = false;
    pulled_ = false;
  }

  // The generation is over, or the worker fenced: drops everything, and starts
  // over [G6]. If it may not, its session hears so.
  void BeginAgain() {
    Drop();
    world_->After(node_, kRetryAfter, [this] {
      if (leaving_) return;
      Begin();
      Advance();
    });
  }

  bool IsOk(const absl::Status& status) {
    if (status.ok()) return true;
    if (!job().fails_with.empty() &&
        absl::StrContains(status.message(), job().fails_with)) {
      return false;
    }
    // Outstanding requests will not be answered any more.
    if (absl::IsFailedPrecondition(status) && HeardPhase() == proto::DONE) {
      Drop();
      // The session hears this, too.
      if (is_done()) Finish();
      return false;
    }
    if (!absl::IsAborted(status)) Complain("has an error", status);
    if (HeardPhase() == proto::STOPPED) {
      Leave();
    } else {
      BeginAgain();
    }
    return false;
  }

  // The phase that the client knows: the session may not have heard it yet.
  proto::JobPhase HeardPhase() {
    absl::MutexLock lock(&transport_.mutex());
    return client_.context()->state().phase();
  }

  // ---- What every worker does ----

  // The number of variables that were declared.
  int num_variables() const {
    return job().tables_alone ? 0 : job().declaration.variables_size();
  }

  void Begin() {
    declare_ = client_.StartDeclare(job().Declared());
    When(*declare_, [this] {
      if (!IsOk(declare_->Await(Now()).status())) return;
      AwaitVariables(/*given_through=*/0);
    });
  }

  void AwaitVariables(uint64_t given_through) {
    variables_ = client_.StartAwaitVariables(
        job().first_values.empty() ? std::nullopt
                                   : std::optional(given_through));
    When(*variables_, [this] { OnVariables(); });
  }

  void Give() {
    auto giving = variables_->StartGive([this](size_t variable) {
      return absl::MakeConstSpan(
          job().first_values.at(job().declaration.variables(variable).name()));
    });
    if (!IsOk(giving.status())) return;
    giving_ = *std::move(giving);
    When(*giving_, [this] {
      if (!IsOk(giving_->Await(Now()))) return;
      AwaitVariables(giving_->generation());
    });
  }

  void OnVariables() {
    const absl::StatusOr<client::Client::Variables> found =
        variables_->Await(Now());
    if (!IsOk(found.status())) return;
    if (*found == client::Client::Variables::kWanted) return Give();
    has_variables_ = true;
    if (HasRows(job())) {
      // In the order of the rows of the first variable, which have the same
      // values.
      row_ids_.resize(NumRows(job()));
      std::iota(row_ids_.begin(), row_ids_.end(), 0);
      now_.WantRows(0, row_ids_);
      next_.WantRows(0, row_ids_);
    }
    if (job().asynchronous()) {
      turn_ = 0;
      request_ = client_.StartTakeTicket();
      return NextTurn();
    }
    Pull(GlobalStep(0), [this] { NextStep(); });
  }

  // Done when AwaitVariable would not wait.
  class VariableHandle final : public Cluster::Handle {
   public:
    VariableHandle(const Cluster::Pull* pull, size_t variable)
        : pull_(*pull), variable_(variable) {}
    bool done() const override { return pull_.HasVariable(variable_); }

   private:
    const Cluster::Pull& pull_;
    const size_t variable_;
  };

  // Begins the next step while its values arrive.
  void PullEarly(GlobalStep version) {
    early_.emplace();
    pull_ = client_.StartPull(version, &now_);
    AwaitVariable(0);
  }

  void AwaitVariable(size_t variable) {
    arrival_ = std::make_unique<VariableHandle>(pull_.get(), variable);
    When(*arrival_, [this, variable] { OnVariable(variable); });
  }

  void OnVariable(size_t variable) {
    const auto arrived = pull_->AwaitVariable(variable, Now());
    if (!IsOk(arrived.status())) return;
    if (!arrived->has_value()) {
      // A newer version has come: what was computed is dropped.
      early_.reset();
      pull_->Resume();
      return When(*pull_, [this] {
        if (IsOk(pull_->Await(Now()))) NextStep();
      });
    }
    if (variable == 0) {
      early_->version = (*arrived)->version;
      early_->push = client_.StartPush(early_->version);
    }
    if ((*arrived)->version != early_->version) {
      world_->Violate("variables of several versions were handed out");
    }
    const absl::Span<const float> values = now_.Of(variable);
    early_->values[job().declaration.variables(variable).name()].assign(
        values.begin(), values.end());
    const auto variables =
        static_cast<size_t>(job().declaration.variables_size());
    if (variable + 1 < variables) return AwaitVariable(variable + 1);
    if (!pull_->done()) world_->Violate("a pull of all variables is not done");
    if (!IsOk(pull_->Await(Now()))) return;
    if (now_.version != early_->version) {
      world_->Violate("a pull has another version than was handed out");
    }
    NextStep();
  }

  void Pull(GlobalStep version, std::function<void()> next) {
    pull_ = client_.StartPull(version, &now_);
    When(*pull_, [this, next = std::move(next)] {
      if (IsOk(pull_->Await(Now()))) next();
    });
  }

  // The worker has everything that it waits for.
  void OnAll() {
    has_all_ = true;
    if (is_done()) Finish();
  }

  // The job is DONE.
  void Finish() {
    if (leaving_ || std::exchange(finishing_, true)) return;
    if (!job().evaluates || index_ != 0 || !has_all_) return Leave();
    pin_request_ = client_.StartPin(absl::Minutes(10));
    When(*pin_request_, [this] {
      absl::StatusOr<std::unique_ptr<Cluster::Pin>> pin =
          pin_request_->Await(Now());
      if (!pin.ok()) return Leave();
      pin_ = *std::move(pin);
      reading_ = pin_->StartRead(&now_);
      When(*reading_, [this] { OnRead(); });
    });
  }

  void OnRead() {
    if (!reading_->Await(Now()).ok()) return Leave();
    if (!job().asynchronous() && now_.version.value() != job().end()) {
      world_->Violate("the pinned version is not the last one");
    }
    pin_.reset();
    proto::EvaluationResult result;
    result.set_step(job().end());
    report_ = client_.StartReportEvaluation(result);
    When(*report_, [this] { Leave(); });
  }

  // ---- Pushes ----

  // Begins the push of a gradient. Null: the generation is over.
  Slot* StartPush(Slot* slot) {
    if (early_.has_value() && early_->push != nullptr) {
      slot->push = std::move(early_->push);
    } else {
      slot->push = ticket_.has_value() ? client_.StartPush(*ticket_, now_)
                                       : client_.StartPush(now_.version);
    }
    if (slot->push->done()) {  // it could not begin
      IsOk(slot->push->Await(Now()).status());
      return nullptr;
    }
    slot->generation = session_.sender().generation();
    slot->id = {LifeOf(session_.sender()), slot->push->sequence()};
    return slot;
  }

  // Hands in a gradient. `ids` and `rows` are memory for the rows of the table,
  // as they are pushed.
  bool HandIn(Slot* slot, const Values& gradient, std::vector<uint64_t>* ids,
              std::vector<float>* rows) {
    for (int v = 0; v < num_variables(); ++v) {
      const auto found = gradient.find(job().declaration.variables(v).name());
      if (found == gradient.end()) continue;
      if (!IsOk(slot->push->Add(v, found->second))) return false;
    }
    if (!HasRows(job())) return true;
    *ids = RowsOfPush(job(), gradient, row_ids_);
    rows->clear();
    for (const uint64_t id : *ids) {
      const auto row = RowOf(job(), gradient, id);
      rows->insert(rows->end(), row.begin(), row.end());
    }
    return IsOk(slot->push->AddRows(0, *ids, *rows));
  }

  // Hands in gradients that must not count, and starts the push again.
  bool HandInOthers(Slot* slot) {
    const uint64_t times =
        job().starts_again ? slot->id.sequence.value() % 3 : 0;
    for (uint64_t i = 0; i < times; ++i) {
      Values others = slot->gradient;
      for (auto& [name, values] : others) {
        for (float& value : values) value += 1000 * (i + 1);
      }
      std::vector<uint64_t> ids;
      std::vector<float> rows;
      if (!HandIn(slot, others, &ids, &rows)) return false;
      slot->push = slot->push->StartAgain();
    }
    return true;
  }

  void Contribute(Slot* slot, Contribution contribution, Parameters* next) {
    contribution.loss = 1;
    if (!HandIn(slot, slot->gradient, &slot->row_ids, &slot->rows)) return;
    IsOk(slot->push->Contribute(contribution, next));
  }

  // The verdict on the push, if it was decided.
  std::optional<proto::Verdict> VerdictOn(Slot* slot) {
    const absl::StatusOr<Cluster::Outcome> outcome = slot->push->Await(Now());
    if (!IsOk(outcome.status())) return std::nullopt;
    slot->push.reset();
    if (outcome->verdict == proto::FENCED) {
      BeginAgain();
      return std::nullopt;
    }
    return outcome->verdict;
  }

  // ---- Synchronous ----

  void NextStep() {
    if (now_.version.value() >= job().end()) return OnAll();
    if (!job().by_ticket()) return TrainStep();
    if (ticket_.has_value()) return TrainTicket();
    request_ = client_.StartTakeTicket();
    When(*request_, [this] {
      const absl::StatusOr<std::optional<Ticket>> ticket =
          request_->Await(Now());
      if (!IsOk(ticket.status())) return;
      ticket_ = *ticket;
      if (!ticket_.has_value()) return OnAll();
      TrainTicket();
    });
  }

  // A ticket for a later step waits for its version.
  void TrainTicket() {
    if (ticket_->global_step <= now_.version) return TrainStep();
    Pull(ticket_->global_step, [this] { NextStep(); });
  }

  // One seat is one exchange; with several seats, none waits for the verdict of
  // another [S1].
  void TrainStep() {
    if (slots_.size() == 1 && !job().computes_early) {
      TrainSeat(&slots_.front(), index_, &next_);
      return;
    }
    num_told_ = 0;
    for (size_t i = 0; i < slots_.size(); ++i) {
      if (!TrainSeat(&slots_[i], index_ + i * job().m(), nullptr)) return;
    }
  }

  bool TrainSeat(Slot* slot, uint32_t seat, Parameters* next) {
    if (StartPush(slot) == nullptr) return false;
    Values values;
    for (int v = 0; v < num_variables(); ++v) {
      const absl::Span<const float> now = now_.Of(v);
      values[job().declaration.variables(v).name()].assign(now.begin(),
                                                           now.end());
    }
    if (early_.has_value()) {
      values = std::move(early_->values);
      early_.reset();
    }
    if (job().tables_alone) {
      const absl::Span<const float> now = now_.RowsOf(0);
      values[job().declaration.variables(0).name()].assign(now.begin(),
                                                           now.end());
    } else if (HasRows(job()) && now_.RowsOf(0) != now_.Of(0)) {
      world_->Violate(absl::StrCat("worker ", index_, " has read rows of ",
                                   "another version than its variables"));
    }
    const uint64_t step = now_.version.value();
    world_->Check(world_->oracle().OnComputed(slot->generation, slot->id, step,
                                              values, now_.loss_scale));
    const Batch batch = ticket_.has_value()
                            ? BatchOfTicket(job(), ticket_->index)
                            : BatchOfSeat(job(), step, seat);
    ticket_.reset();
    slot->gradient = GradientOf(job(), batch, values, now_.loss_scale);
    if (!HandInOthers(slot)) return false;
    Contribution contribution;
    contribution.seat = seat;
    contribution.examples = batch.examples;
    contribution.not_finite = batch.not_finite();
    When(*slot->push, [this, slot] { OnVerdict(slot); });
    Contribute(slot, contribution, next);
    return slot->push != nullptr;
  }

  void OnVerdict(Slot* slot) {
    const std::optional<proto::Verdict> verdict = VerdictOn(slot);
    if (!verdict.has_value()) return;
    world_->Check(
        world_->oracle().OnVerdict(slot->generation, slot->id, *verdict));
    if (slots_.size() > 1 || job().computes_early) {
      if (++num_told_ < slots_.size()) return;
      if (job().computes_early) return PullEarly(now_.version.next());
      return Pull(now_.version.next(), [this] { NextStep(); });
    }
    if (next_.version <= now_.version) {
      world_->Violate(absl::StrCat("worker ", index_, " has pushed for step ",
                                   now_.version.value(), ", and gets version ",
                                   next_.version.value()));
    }
    std::swap(now_, next_);
    NextStep();
  }

  // ---- Asynchronous ----

  void NextTurn() {
    Slot* const slot = &slots_[turn_ % slots_.size()];
    Settle(slot, [this, slot] {
      When(*request_, [this, slot] {
        const absl::StatusOr<std::optional<Ticket>> ticket =
            request_->Await(Now());
        if (!IsOk(ticket.status())) return;
        if (!ticket->has_value()) return SettleAll(0);
        ticket_ = *ticket;
        request_ = client_.StartTakeTicket();
        if (std::exchange(pulled_, false)) return TrainOn(slot);
        Pull(GlobalStep(0), [this, slot] { TrainOn(slot); });
      });
    });
  }

  // Waits until the push of the slot, if any, is applied.
  void Settle(Slot* slot, std::function<void()> next) {
    if (slot->push == nullptr) return next();
    When(*slot->push, [this, slot, next = std::move(next)] {
      const std::optional<proto::Verdict> verdict = VerdictOn(slot);
      if (!verdict.has_value()) return;
      if (*verdict != proto::ACCEPTED) {
        return world_->Violate(absl::StrCat(slot->id.ToString(), " is told ",
                                            proto::Verdict_Name(*verdict)));
      }
      world_->oracle().GivenOf(slot->generation, slot->id).accepted = true;
      pulled_ = exchanges();
      next();
    });
  }

  void SettleAll(size_t done) {
    if (done == slots_.size()) return OnAll();
    Settle(&slots_[(turn_ + done) % slots_.size()],
           [this, done] { SettleAll(done + 1); });
  }

  // Whether values come with the verdict.
  bool exchanges() const { return slots_.size() == 1; }

  void TrainOn(Slot* slot) {
    if (StartPush(slot) == nullptr) return;
    ticket_.reset();
    Given& given = world_->oracle().GivenOf(slot->generation, slot->id);
    given.clip_factor = 1;
    given.examples = 1;
    slot->gradient = GradientOf(job(), given);
    if (!HandInOthers(slot)) return;
    Contribution contribution;
    contribution.examples = given.examples;
    ++turn_;
    Contribute(slot, contribution, exchanges() ? &now_ : nullptr);
    if (slot->push != nullptr) NextTurn();
  }

  World* const world_;
  const Process process_;
  const uint32_t index_;
  const Node node_;
  Session session_;
  SessionNews news_;
  ClientTransport transport_;
  client::Client client_;

  bool begun_ = false;
  bool advancing_ = false;
  bool has_variables_ = false;
  bool has_all_ = false;
  bool ends_ = false;
  bool finishing_ = false;
  bool leaving_ = false;
  bool steps_down_ = false;

  // The ids of all rows of the table.
  std::vector<uint64_t> row_ids_;
  Parameters now_;
  Parameters next_;
  std::optional<Ticket> ticket_;
  // Whether `now_` is newer than the last push.
  bool pulled_ = false;
  size_t turn_ = 0;
  // The number of pushes of the step whose verdict is known.
  size_t num_told_ = 0;
  // A step that is begun while its values arrive.
  struct Early {
    GlobalStep version;
    // The values handed out so far.
    Values values;
    // The push of the first seat, until it is contributed.
    std::unique_ptr<Cluster::Push> push;
  };
  std::optional<Early> early_;
  // Handles are destroyed before the memory that they write to.
  std::vector<Slot> slots_;
  std::unique_ptr<client::Question<proto::DeclareResponse>> declare_;
  std::unique_ptr<client::Client::VariablesRequest> variables_;
  std::unique_ptr<client::Giving> giving_;
  std::unique_ptr<Cluster::TicketRequest> request_;
  std::unique_ptr<Cluster::Pull> pull_;
  std::unique_ptr<VariableHandle> arrival_;
  std::unique_ptr<client::PinRequest> pin_request_;
  std::unique_ptr<Cluster::Pin> pin_;
  std::unique_ptr<Cluster::Pull> reading_;
  std::unique_ptr<client::Question<proto::ReportEvaluationResponse>> report_;
  std::vector<std::pair<const Cluster::Handle*, std::function<void()>>> waits_;
};

}  // namespace

std::unique_ptr<WorkerProgram> MakeClientWorker(World* world, Process process,
                                                uint32_t index,
                                                uint64_t nonce) {
  return std::make_unique<ClientWorker>(world, process, index, nonce);
}

}  // namespace holdfast::sim
