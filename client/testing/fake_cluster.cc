// SPDX-License-Identifier: Apache-2.0
#include "client/testing/fake_cluster.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace holdfast {
namespace {

float LossScaleAt(GlobalStep version) {
  return std::exp2(static_cast<float>(version.value()));
}

int64_t NumElements(const proto::Variable& variable) {
  int64_t size = 1;
  for (const int64_t dimension : variable.shape()) size *= dimension;
  return size;
}

}  // namespace

class FakeCluster::FakePush final : public Cluster::Push {
 public:
  FakePush(FakeCluster* cluster, GlobalStep step, PushSequence sequence)
      : cluster_(cluster), step_(step), sequence_(sequence) {}

  PushSequence sequence() const override { return sequence_; }

  absl::Status Add(size_t variable, absl::Span<const float> gradient) override {
    gradients_[variable] = gradient;
    {
      absl::MutexLock lock(&cluster_->mutex_);
      cluster_->pushed_[sequence_.value()][variable] = {gradient.begin(),
                                                        gradient.end()};
    }
    return cluster_->Call(absl::StrCat("add ", variable));
  }

  absl::Status AddRows(size_t table, absl::Span<const uint64_t> ids,
                       absl::Span<const float> gradients) override {
    {
      absl::MutexLock lock(&cluster_->mutex_);
      Rows& rows = cluster_->pushed_rows_[sequence_.value()][table];
      const size_t length = cluster_->declaration_.tables(table).row_length();
      for (size_t i = 0; i < ids.size(); ++i) {
        const auto row = gradients.subspan(i * length, length);
        rows[ids[i]] = {row.begin(), row.end()};
      }
    }
    return cluster_->Call(absl::StrCat("add rows of ", table));
  }

  absl::Span<float> Memory(size_t variable) override {
    const auto found = cluster_->memory.find(variable);
    if (found == cluster_->memory.end()) return {};
    std::vector<float>& memory = memory_[variable];
    memory.resize(found->second);
    return absl::MakeSpan(memory);
  }

  std::unique_ptr<Push> StartAgain() override {
    cluster_->Call(absl::StrCat("start push #", sequence_.value(), " again"))
        .IgnoreError();
    CheckMemory();
    absl::MutexLock lock(&cluster_->mutex_);
    cluster_->pushed_.erase(sequence_.value());
    cluster_->pushed_rows_.erase(sequence_.value());
    return std::make_unique<FakePush>(cluster_, step_, sequence_);
  }

  bool done() const override { return true; }

  bool WaitUntilHeld(absl::Time) override {
    return cluster_->IsDue(absl::StrCat("await push #", sequence_.value()));
  }

  absl::Status AwaitHeld(absl::Time deadline) override {
    CheckMemory();
    held_ = true;
    return cluster_->Call(absl::StrCat("await push #", sequence_.value()),
                          deadline);
  }

  bool WaitUntilDone(absl::Time) override {
    return cluster_->IsDue(absl::StrCat(
        cluster_->asynchronous() ? "await applied #" : "await verdict #",
        sequence_.value()));
  }

  absl::Status Contribute(const Contribution& contribution,
                          Parameters* next) override {
    empty_ = contribution.examples == 0;
    next_ = next;
    if (cluster_->asynchronous()) return Apply(contribution);
    cluster_
        ->Call(absl::StrCat("contribute #", sequence_.value(), ": step ",
                            step_.value(), ", seat ", contribution.seat, ", ",
                            contribution.examples, " examples"))
        .IgnoreError();
    const auto found =
        cluster_->verdicts.find({step_.value(), contribution.seat});
    if (found != cluster_->verdicts.end()) verdict_ = found->second;
    cluster_->DecideTicket(sequence_.value(), verdict_);
    if (next != nullptr) pull_ = cluster_->StartPull(step_.next(), next);
    absl::MutexLock lock(&cluster_->mutex_);
    cluster_->contributions_.push_back(contribution);
    return absl::OkStatus();
  }

  absl::StatusOr<Outcome> Await(absl::Time deadline) override {
    if (cluster_->asynchronous()) return AwaitApplied(deadline);
    absl::Status status = absl::OkStatus();
    if (!empty_ && !held_) status = AwaitHeld(deadline);
    if (!status.ok()) return status;
    status = cluster_->Call(absl::StrCat("await verdict #", sequence_.value()),
                            deadline);
    if (!status.ok()) return status;
    cluster_->ForgetTicket(sequence_.value());
    if (pull_ != nullptr && verdict_ != proto::FENCED) {
      status = pull_->Await(deadline);
    }
    if (!status.ok()) return status;
    return Outcome{verdict_, step_.next()};
  }

  absl::StatusOr<Outcome> AwaitVerdict(
      absl::Time deadline, std::unique_ptr<Cluster::Pull>* rest) override {
    std::unique_ptr<Cluster::Pull> pull;
    if (pull_ != nullptr && !pull_->done()) pull = std::move(pull_);
    const absl::StatusOr<Outcome> outcome = Await(deadline);
    *rest = outcome.ok() ? std::move(pull) : nullptr;
    return outcome;
  }

 private:
  absl::Status Apply(const Contribution& contribution) {
    const auto found = cluster_->applied_verdicts.find(sequence_.value());
    if (found != cluster_->applied_verdicts.end()) verdict_ = found->second;
    absl::Status status =
        cluster_->Call(absl::StrCat("apply #", sequence_.value(), ": ",
                                    contribution.examples, " examples"));
    cluster_->DecideTicket(sequence_.value(), verdict_);
    absl::MutexLock lock(&cluster_->mutex_);
    cluster_->applications_[sequence_.value()] = contribution;
    return status;
  }

  absl::StatusOr<Outcome> AwaitApplied(absl::Time deadline) {
    CheckMemory();
    HOLDFAST_RETURN_IF_ERROR(cluster_->Call(
        absl::StrCat("await applied #", sequence_.value()), deadline));
    cluster_->ForgetTicket(sequence_.value());
    if (verdict_ == proto::ACCEPTED) {
      {
        absl::MutexLock lock(&cluster_->mutex_);
        cluster_->version_ = std::min(cluster_->version_ + 1,
                                      cluster_->declaration_.total_steps());
      }
      if (next_ != nullptr) {
        HOLDFAST_RETURN_IF_ERROR(
            cluster_->StartPull(GlobalStep(0), next_)->Await(deadline));
      }
    }
    return Outcome{verdict_};
  }

  // Checks that the gradients that were handed in are unchanged.
  void CheckMemory() {
    absl::MutexLock lock(&cluster_->mutex_);
    for (const auto& [variable, gradient] : gradients_) {
      if (gradient != cluster_->pushed_[sequence_.value()][variable]) {
        cluster_->overwritten_.insert(sequence_.value());
      }
    }
  }

  FakeCluster* const cluster_;
  const Counted counted_{cluster_};
  const GlobalStep step_;
  const PushSequence sequence_;
  std::map<size_t, absl::Span<const float>> gradients_;
  std::map<size_t, std::vector<float>> memory_;
  bool held_ = false;
  bool empty_ = false;
  proto::Verdict verdict_ = proto::ACCEPTED;
  Parameters* next_ = nullptr;
  std::unique_ptr<Cluster::Pull> pull_;
};

class FakeCluster::FakeTicketRequest final : public Cluster::TicketRequest {
 public:
  // `answer`: a ticket, an error, or, while the request is parked, nullopt.
  FakeTicketRequest(FakeCluster* cluster, uint64_t sequence,
                    absl::StatusOr<std::optional<Ticket>> answer)
      : cluster_(cluster), sequence_(sequence), answer_(std::move(answer)) {}

  bool done() const override { return true; }

  bool WaitUntilDone(absl::Time) override {
    if (answer_.ok() && !answer_->has_value() && cluster_->WaitsForOwnTicket())
      return false;
    return cluster_->IsDue(absl::StrCat("await ticket #", sequence_));
  }

  absl::StatusOr<std::optional<Ticket>> Await(absl::Time deadline) override {
    HOLDFAST_RETURN_IF_ERROR(
        cluster_->Call(absl::StrCat("await ticket #", sequence_), deadline));
    if (!answer_.ok() || answer_->has_value()) return answer_;
    absl::MutexLock lock(&cluster_->mutex_);
    answer_ = cluster_->GiveTicket(sequence_);
    if (answer_->has_value()) return answer_;
    for (const auto& [sequence, held] : cluster_->held_) {
      if (!held.decided) {
        return absl::DeadlineExceededError(
            absl::StrCat("the worker waits for its own ticket ", held.index));
      }
    }
    cluster_->version_ = cluster_->declaration_.total_steps();  // DONE
    return answer_;
  }

 private:
  FakeCluster* const cluster_;
  const Counted counted_{cluster_};
  const uint64_t sequence_;
  absl::StatusOr<std::optional<Ticket>> answer_;
};

class FakeCluster::FakePull final : public Cluster::Pull {
 public:
  FakePull(FakeCluster* cluster, GlobalStep min_version, Parameters* into)
      : cluster_(cluster), min_version_(min_version), into_(into) {
    const auto slow = cluster->slow_pulls.find(min_version.value());
    if (slow == cluster->slow_pulls.end()) return;
    superseded_at_ = slow->second;
    const int variables = cluster->declaration_.variables_size();
    missing_.assign(variables, true);
    into->Resize(variables);
    for (int i = 0; i < variables; ++i) {
      FillVariable(i, std::numeric_limits<float>::quiet_NaN());
    }
  }

  bool done() const override {
    return std::find(missing_.begin(), missing_.end(), true) == missing_.end();
  }

  bool HasVariable(size_t variable) const override {
    return missing_.empty() || !missing_[variable];
  }

  absl::StatusOr<std::optional<Arrived>> AwaitVariable(
      size_t variable, absl::Time deadline) override {
    HOLDFAST_RETURN_IF_ERROR(
        cluster_->Call(absl::StrCat("await variable ", variable, " of pull ",
                                    min_version_.value()),
                       deadline));
    if (variable == superseded_at_) return std::nullopt;
    FillVariable(variable, min_version_.value());
    missing_[variable] = false;
    return Arrived{min_version_, LossScaleAt(min_version_)};
  }

  void Resume() override {}

  bool WaitUntilDone(absl::Time) override {
    return cluster_->IsDue(absl::StrCat("await pull ", min_version_.value()));
  }

  absl::Status Await(absl::Time deadline) override {
    HOLDFAST_RETURN_IF_ERROR(cluster_->Call(
        absl::StrCat("await pull ", min_version_.value()), deadline));
    GlobalStep version = min_version_;
    const auto found = cluster_->newest.find(min_version_.value());
    absl::MutexLock lock(&cluster_->mutex_);
    if (found != cluster_->newest.end()) {
      version = GlobalStep(found->second);
    } else if (cluster_->asynchronous()) {
      version = GlobalStep(cluster_->version_);
    }
    version = std::max(version, GlobalStep(cluster_->first_version));
    cluster_->Fill(version, into_);
    missing_.clear();
    cluster_->version_ = std::max(cluster_->version_, version.value());
    return absl::OkStatus();
  }

 private:
  void FillVariable(size_t variable, float value) {
    for (float& element : into_->Write(
             variable,
             NumElements(cluster_->declaration_.variables(variable)))) {
      element = value;
    }
  }

  FakeCluster* const cluster_;
  const Counted counted_{cluster_};
  const GlobalStep min_version_;
  Parameters* const into_;
  // Indexed by variable: whether its values have not been awaited. Empty: all
  // values arrive with Await.
  std::vector<bool> missing_;
  std::optional<size_t> superseded_at_;
};

class FakeCluster::FakeRead final : public Cluster::Pull {
 public:
  FakeRead(FakeCluster* cluster, GlobalStep version)
      : cluster_(cluster), version_(version) {}

  bool done() const override { return true; }
  bool WaitUntilDone(absl::Time) override { return true; }
  absl::Status Await(absl::Time deadline) override {
    return cluster_->Call(absl::StrCat("read ", version_.value()), deadline);
  }
  bool HasVariable(size_t) const override { return true; }
  absl::StatusOr<std::optional<Arrived>> AwaitVariable(size_t,
                                                       absl::Time) override {
    return absl::UnimplementedError("pinned values are read whole");
  }
  void Resume() override {}

 private:
  FakeCluster* const cluster_;
  const GlobalStep version_;
};

class FakeCluster::FakePin final : public Cluster::Pin {
 public:
  FakePin(FakeCluster* cluster, GlobalStep version)
      : cluster_(cluster), version_(version) {}

  GlobalStep version() const override { return version_; }

  std::unique_ptr<Cluster::Pull> StartRead(Parameters* into) override {
    cluster_->Fill(version_, into);
    if (!cluster_->pinned_versions.empty()) {
      into->versions = cluster_->pinned_versions;
      into->version =
          *std::max_element(into->versions.begin(), into->versions.end());
      for (const GlobalStep of_ps : into->versions) {
        if (of_ps == GlobalStep(0)) continue;
        into->version = std::min(into->version, of_ps);
      }
    }
    return std::make_unique<FakeRead>(cluster_, version_);
  }

 private:
  FakeCluster* const cluster_;
  const Counted counted_{cluster_};
  const GlobalStep version_;
};

FakeCluster::FakeCluster(const proto::Declaration& declaration)
    : declaration_(declaration) {
  for (uint64_t i = 0; i < declaration.total_tickets(); ++i) {
    tickets.push_back(i);
  }
}

std::vector<std::string> FakeCluster::calls() const { return calls(""); }

std::vector<std::string> FakeCluster::calls(const std::string& prefix) const {
  absl::MutexLock lock(&mutex_);
  std::vector<std::string> lines;
  for (const auto& [line, deadline] : calls_) {
    if (absl::StartsWith(line, prefix)) lines.push_back(line);
  }
  return lines;
}

absl::Time FakeCluster::deadline_of(const std::string& prefix) const {
  absl::MutexLock lock(&mutex_);
  absl::Time last = absl::InfinitePast();
  for (const auto& [line, deadline] : calls_) {
    if (absl::StartsWith(line, prefix)) last = deadline;
  }
  return last;
}

std::vector<Contribution> FakeCluster::contributions() const {
  absl::MutexLock lock(&mutex_);
  return contributions_;
}

std::map<uint64_t, Contribution> FakeCluster::applications() const {
  absl::MutexLock lock(&mutex_);
  return applications_;
}

void FakeCluster::AwaitRollBack() const {
  absl::MutexLock lock(&mutex_);
  const auto rolled_back = [this] { return roll_back_.has_value(); };
  mutex_.Await(absl::Condition(&rolled_back));
}

std::set<uint64_t> FakeCluster::overwritten() const {
  absl::MutexLock lock(&mutex_);
  return overwritten_;
}

std::map<size_t, std::vector<float>> FakeCluster::pushed(uint64_t n) const {
  absl::MutexLock lock(&mutex_);
  const auto found = pushed_.find(n);
  if (found == pushed_.end()) return {};
  return found->second;
}

std::map<size_t, FakeCluster::Rows> FakeCluster::pushed_rows(uint64_t n) const {
  absl::MutexLock lock(&mutex_);
  const auto found = pushed_rows_.find(n);
  if (found == pushed_rows_.end()) return {};
  return found->second;
}

absl::Status FakeCluster::Declare(const proto::Declaration& declaration,
                                  absl::Time deadline) {
  declared_ = declaration;
  return Call("declare", deadline);
}

absl::Status FakeCluster::AwaitVariables(absl::Time deadline,
                                         const FirstValues&) {
  absl::Status status = Call("await variables", deadline);
  absl::MutexLock lock(&mutex_);
  if (!status.ok() || !roll_back_.has_value()) return status;
  if (handles_ > 0) {
    return absl::InternalError(
        absl::StrCat(handles_.load(), " handles are of the generation before"));
  }
  first_version = roll_back_->version;
  version_ = roll_back_->version;
  tickets = roll_back_->tickets;
  held_.clear();
  roll_back_.reset();
  return status;
}

std::unique_ptr<Cluster::Push> FakeCluster::StartPush(GlobalStep step) {
  const PushSequence sequence = NextSequence();
  Call(absl::StrCat("push #", sequence.value(), " of step ", step.value()))
      .IgnoreError();
  return std::make_unique<FakePush>(this, step, sequence);
}

std::unique_ptr<Cluster::Push> FakeCluster::StartPush(const Ticket& ticket,
                                                      const Parameters& at) {
  Call(absl::StrCat("push #", ticket.sequence.value(), " of ticket ",
                    ticket.index, " at ", at.version.value()))
      .IgnoreError();
  return std::make_unique<FakePush>(this, at.version, ticket.sequence);
}

std::unique_ptr<Cluster::TicketRequest> FakeCluster::StartTakeTicket() {
  const uint64_t sequence = NextSequence().value();
  Call(absl::StrCat("take ticket #", sequence)).IgnoreError();
  const auto& mode = declaration_.consistency();
  const uint32_t n = mode.synchronous().replicas_to_aggregate();
  const uint32_t m = mode.synchronous().total_num_replicas();
  const size_t limit = asynchronous() ? mode.asynchronous().pipeline_depth() + 1
                                      : (std::max(n, m) + m - 1) / m;
  absl::StatusOr<std::optional<Ticket>> answer;
  {
    absl::MutexLock lock(&mutex_);
    if (held_.size() < limit) {
      answer = GiveTicket(sequence);
    } else {
      answer = absl::ResourceExhaustedError(
          absl::StrCat("the worker holds ", held_.size(), " tickets"));
    }
  }
  return std::make_unique<FakeTicketRequest>(this, sequence, std::move(answer));
}

std::optional<Ticket> FakeCluster::GiveTicket(uint64_t sequence) {
  if (tickets.empty()) return std::nullopt;
  Ticket ticket;
  ticket.sequence = PushSequence(sequence);
  ticket.index = tickets.front();
  ticket.loss_scale = std::exp2(static_cast<float>(ticket.index));
  tickets.pop_front();
  const auto found = ticket_steps.find(sequence);
  ticket.global_step =
      GlobalStep(found == ticket_steps.end() ? version_ : found->second);
  held_[sequence].index = ticket.index;
  return ticket;
}

bool FakeCluster::WaitsForOwnTicket() const {
  absl::MutexLock lock(&mutex_);
  if (!tickets.empty()) return false;
  return std::any_of(held_.begin(), held_.end(),
                     [](const auto& held) { return !held.second.decided; });
}

void FakeCluster::DecideTicket(uint64_t sequence, proto::Verdict verdict) {
  absl::MutexLock lock(&mutex_);
  const auto found = held_.find(sequence);
  if (found == held_.end()) return;
  found->second.decided = true;
  if (verdict != proto::ACCEPTED) tickets.push_front(found->second.index);
}

void FakeCluster::ForgetTicket(uint64_t sequence) {
  absl::MutexLock lock(&mutex_);
  held_.erase(sequence);
}

PushSequence FakeCluster::NextSequence() {
  absl::MutexLock lock(&mutex_);
  return PushSequence(++last_sequence_);
}

std::unique_ptr<Cluster::Pull> FakeCluster::StartPull(GlobalStep min_version,
                                                      Parameters* into) {
  Call(absl::StrCat("pull ", min_version.value())).IgnoreError();
  return std::make_unique<FakePull>(this, min_version, into);
}

absl::StatusOr<std::unique_ptr<Cluster::Pin>> FakeCluster::PinVersion(
    absl::Duration hold, absl::Time deadline) {
  GlobalStep version;
  {
    absl::MutexLock lock(&mutex_);
    version = GlobalStep(version_);
  }
  HOLDFAST_RETURN_IF_ERROR(
      Call(absl::StrCat("pin ", version.value()), deadline));
  return std::make_unique<FakePin>(this, version);
}

absl::Status FakeCluster::ReportEvaluation(
    const proto::EvaluationResult& result, absl::Time deadline) {
  {
    absl::MutexLock lock(&mutex_);
    reports_.push_back(result);
  }
  return Call(absl::StrCat("report ", result.step()), deadline);
}

absl::StatusOr<std::optional<proto::CheckpointName>>
FakeCluster::NextEvaluation(absl::Time deadline) {
  HOLDFAST_RETURN_IF_ERROR(Call("next evaluation", deadline));
  absl::MutexLock lock(&mutex_);
  if (checkpoints.empty()) return std::nullopt;
  const proto::CheckpointName next = checkpoints.front();
  checkpoints.pop_front();
  return next;
}

absl::Status FakeCluster::ReportEvaluation(
    const proto::EvaluationResult& result,
    const proto::CheckpointName& checkpoint, absl::Time deadline) {
  {
    absl::MutexLock lock(&mutex_);
    reports_.push_back(result);
  }
  return Call(absl::StrCat("report ", checkpoint.step(), " of generation ",
                           checkpoint.generation()),
              deadline);
}

absl::StatusOr<proto::GetStatusResponse> FakeCluster::GetStatus(
    absl::Time deadline) {
  HOLDFAST_RETURN_IF_ERROR(Call("status", deadline));
  return status;
}

absl::StatusOr<std::optional<proto::DeclaredJob>> FakeCluster::GetDeclaredJob(
    absl::Time deadline) {
  HOLDFAST_RETURN_IF_ERROR(Call("declared job", deadline));
  if (!declaration_.has_job()) return std::nullopt;
  return declaration_.job();
}

absl::StatusOr<proto::GetEventsResponse> FakeCluster::GetEvents(
    uint64_t after, absl::Time deadline) {
  HOLDFAST_RETURN_IF_ERROR(Call(absl::StrCat("events ", after), deadline));
  proto::GetEventsResponse response;
  for (const proto::Event& event : events) {
    if (event.number() > after) *response.add_events() = event;
  }
  return response;
}

absl::StatusOr<proto::GetHistoryResponse> FakeCluster::GetHistory(
    const proto::GetHistoryRequest& request, absl::Time deadline) {
  HOLDFAST_RETURN_IF_ERROR(
      Call(absl::StrCat("history ", request.after_step()), deadline));
  return history;
}

absl::StatusOr<proto::TraceResponse> FakeCluster::Trace(
    const proto::TraceRequest& request, absl::Time deadline) {
  return absl::UnimplementedError("nothing is traced here");
}

absl::StatusOr<GlobalStep> FakeCluster::SaveCheckpoint(absl::Time deadline) {
  return absl::FailedPreconditionError("there are no checkpoints here");
}

absl::StatusOr<proto::StopResponse> FakeCluster::StopJob(
    proto::StopRequest request, absl::Time deadline) {
  return absl::FailedPreconditionError("nothing is stopped here");
}

absl::Status FakeCluster::Finish(absl::Time deadline) {
  return Call("finish", deadline);
}

absl::StatusOr<proto::SetLearningRateResponse> FakeCluster::SetLearningRate(
    const proto::SetLearningRateRequest& request, absl::Time deadline) {
  return absl::FailedPreconditionError("no learning rate is changed here");
}

absl::Status FakeCluster::AwaitDone(absl::Time deadline) {
  return Call("await done", deadline);
}
void FakeCluster::Cancel() { Call("cancel").IgnoreError(); }

bool FakeCluster::rolled_back() const {
  absl::MutexLock lock(&mutex_);
  return roll_back_.has_value();
}

absl::Status FakeCluster::Leave(const std::string& error, absl::Time deadline) {
  return Call(error.empty() ? "leave" : absl::StrCat("leave: ", error),
              deadline);
}

absl::Status FakeCluster::LeaveEarly(bool program_ended, absl::Time deadline) {
  return Call(program_ended ? "leave: program ended" : "leave: stepped down",
              deadline);
}

proto::JobState FakeCluster::state() const {
  proto::JobState state;
  state.set_phase(phase);
  state.set_reason(reason);
  if (reporter.has_value()) *state.mutable_reporter() = *reporter;
  return state;
}

bool FakeCluster::IsDue(const std::string& line) {
  absl::MutexLock lock(&mutex_);
  const auto found = delays.find(line);
  if (found == delays.end() || found->second == 0) return true;
  --found->second;
  return false;
}

absl::Status FakeCluster::Call(const std::string& line, absl::Time deadline) {
  {
    absl::MutexLock lock(&mutex_);
    calls_.emplace_back(line, deadline);
    if (const auto node = roll_backs.extract(line)) {
      roll_back_ = node.mapped();
      return absl::AbortedError("a ps has lost its state");
    }
    if (roll_back_.has_value() && line != "declare" &&
        line != "await variables" && !absl::StartsWith(line, "leave")) {
      return absl::AbortedError("a ps has lost its state");
    }
  }
  const auto found = errors.find(line);
  return found == errors.end() ? absl::OkStatus() : found->second;
}

void FakeCluster::Fill(GlobalStep version, Parameters* into) const {
  into->version = version;
  into->versions = {version};
  into->loss_scale = LossScaleAt(version);
  const int variables =
      into->wants_variables() ? declaration_.variables_size() : 0;
  into->Resize(variables);
  for (int i = 0; i < variables; ++i) {
    for (float& value :
         into->Write(i, NumElements(declaration_.variables(i)))) {
      value = version.value();
    }
  }
  for (size_t i = 0; i < into->num_tables(); ++i) {
    const size_t length = declaration_.tables(i).row_length();
    for (float& value : into->WriteRows(i, length)) value = version.value();
  }
}

}  // namespace holdfast
