// The part of the coordinator that survives it: the journal, generations and
// checkpoints (docs/recovery.md).
#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rpc/backoff.h"
#include "common/rpc_limits.h"
#include "glog/logging.h"
#include "ps_server/coordinator/coordinator.h"
#include "ps_server/coordinator/schedule.h"
#include "ps_server/protocol/request.h"

namespace holdfast {
namespace {

// Before a disk that refused is tried again.
constexpr absl::Duration kDiskRetryAfter = absl::Seconds(1);
// Before the next checkpoint after one that could not be written.
constexpr absl::Duration kSaveRetryAfter = absl::Seconds(10);
// Before a shard that did not answer it is asked again.
constexpr absl::Duration kAskAgainAfter = absl::Milliseconds(200);

// As TensorFlow's Saver keeps.
constexpr uint32_t kDefaultKeep = 5;

std::string Text(const proto::CheckpointName& name) {
  return absl::StrCat("step ", name.step(), " (generation ", name.generation(),
                      ")");
}

}  // namespace

// ---- The journal ----

void Coordinator::ChangeJournal(
    absl::AnyInvocable<void(proto::Journal*)> change,
    absl::AnyInvocable<void()> then) {
  journal_changes_.push_back({std::move(change), std::move(then)});
  if (!journal_busy_) WriteJournal();
}

void Coordinator::WriteJournal() {
  journal_busy_ = true;
  if (failing_since_ == absl::InfiniteFuture()) journal_begun_ = clock_->Now();
  journal_due_ = absl::InfiniteFuture();
  journal_in_writing_ = journal_;
  journal_changes_.front().change(&journal_in_writing_);
  archive_->WriteJournal(journal_in_writing_,
                         [this](const absl::StatusOr<Done>& done) {
                           OnJournalWritten(done.status());
                         });
}

void Coordinator::OnJournalWritten(const absl::Status& status) {
  if (!status.ok() && ended()) {
    journal_changes_.clear();
    journal_busy_ = false;
    return;
  }
  if (!status.ok()) {
    archive_trouble_ = std::string(status.message());
    LOG(ERROR) << "the journal cannot be written: " << status;
    checkpoint_error_ =
        absl::StrCat("the journal cannot be written: ", status.message());
    const absl::Time now = clock_->Now();
    failing_since_ = std::min(failing_since_, now);
    if (absl::IsAborted(status) || now - failing_since_ >= RecoveryTimeout()) {
      journal_changes_.clear();
      journal_busy_ = false;
      return FailNow(absl::StrCat("/job:ps/task:0 cannot write its journal: ",
                                  status.message()));
    }
    journal_due_ = now + kDiskRetryAfter;
    return;
  }
  if (failing_since_ != absl::InfiniteFuture()) checkpoint_error_.clear();
  failing_since_ = absl::InfiniteFuture();
  archive_trouble_.clear();
  journal_ = journal_in_writing_;
  JournalChange done = std::move(journal_changes_.front());
  journal_changes_.pop_front();
  journal_busy_ = false;
  done.then();
  if (!journal_busy_ && !journal_changes_.empty()) WriteJournal();
  // [G2] waits until what was under way is in the journal or is not.
  if (beginning_ && !journal_busy_) ChooseCheckpoint();
}

// ---- Generations ----

void Coordinator::BeginGeneration(const std::string& why) {
  if (ended() || beginning_) return;
  const uint64_t next = journal_.generation() + 1;
  LOG_IF(WARNING, next > 1) << "generation " << next << " begins: " << why;
  beginning_ = true;
  recovered_ = why;
  generation_begun_ = clock_->Now();
  state_.set_phase(proto::STARTING);
  created_ = false;
  receipts_.reset();
  step_.reset();
  tickets_.reset();
  loss_scaler_.reset();
  divergence_.reset();
  members_.clear();
  fences_due_.clear();
  applied_.clear();
  ledger_ = Ledger();
  saving_.reset();
  disk_watch_.End();
  concluding_since_.reset();
  conclusion_failing_since_ = absl::InfiniteFuture();
  for (auto& [task, session] : sessions_) {
    session.clock = 0;
    session.last_ticket = PushSequence(0);
    SetAlive(task, &session, session.alive);
  }
  // What is still to be answered belongs to a generation that is over.
  ++broadcast_.number;
  broadcast_.kind = Broadcast::kNone;
  broadcast_.shards.clear();
  if (!journal_busy_) ChooseCheckpoint();
}

void Coordinator::ChooseCheckpoint() {
  if (ended() || reading_manifest_ || !journal_changes_.empty()) return;
  begin_due_ = absl::InfiniteFuture();
  from_.Clear();
  if (journal_.checkpoints().empty()) return StartGeneration();
  if (journal_.finished()) {
    // That was written when the generation before was over already.
    beginning_ = false;
    FinishByJournal();
    return RetryRegisters(std::nullopt);
  }
  reading_manifest_ = true;
  archive_->ReadManifest(*journal_.checkpoints().rbegin(),
                         [this](const absl::StatusOr<proto::Manifest>& found) {
                           reading_manifest_ = false;
                           OnManifest(found);
                         });
}

void Coordinator::OnManifest(const absl::StatusOr<proto::Manifest>& manifest) {
  if (ended()) return;
  const absl::Status& status = manifest.status();
  if (status.ok()) {
    unreadable_.Clear();
    archive_trouble_.clear();
    from_ = *manifest;
    return StartGeneration();
  }
  if (absl::IsDataLoss(status) || absl::IsNotFound(status) ||
      (absl::IsUnknown(status) &&
       unreadable_.Count(clock_->Now(), DiskTimeout()))) {
    DropCheckpoint(status);  // and chooses again
    return;
  }
  LOG(ERROR) << "a checkpoint cannot be read: " << status;
  archive_trouble_ = std::string(status.message());
  begin_due_ = clock_->Now() + kDiskRetryAfter;
}

bool Coordinator::DropCheckpoint(const absl::Status& why) {
  const proto::CheckpointName name = *journal_.checkpoints().rbegin();
  if (journal_.checkpoints_size() == 1) {
    Fail(absl::StrCat(
        "the checkpoint of ", Text(name),
        " cannot be read, and there is none before it: ", why.message()));
    return false;
  }
  LOG(ERROR) << "the checkpoint of " << Text(name)
             << " cannot be read, so the job goes on from the one before: "
             << why;
  unreadable_.Clear();
  archive_trouble_.clear();
  // First, so that a new life finds it in the journal or set aside.
  archive_->SetAside(name);
  ChangeJournal(
      [](proto::Journal* journal) {
        journal->mutable_checkpoints()->RemoveLast();
      },
      [] {});
  return true;
}

void Coordinator::StartGeneration() {
  const uint64_t next = journal_.generation() + 1;
  ChangeJournal(
      [next](proto::Journal* journal) { journal->set_generation(next); },
      [this, next] {
        if (ended()) return;
        generation_ = Generation(next);
        beginning_ = false;
        const proto::Position& position = from_.position();
        durable_step_ = position.step();
        durable_through_.clear();
        committed_ = GlobalStep(position.step());
        updates_ = position.updates();
        progress_ = Progress(position);
        save_wanted_ = 0;
        if (evaluation_.has_value() && evaluation_->step() > durable_step_) {
          evaluation_.reset();
        }
        if (next > 1) {
          absl::StrAppend(&recovered_, "; goes on from step ", durable_step_);
          LOG(WARNING) << "generation " << next << ": " << recovered_;
        }
        // What was parked is of an older generation.
        for (auto& parked : parked_contributions_.TakeAll()) {
          parked.reply(ContributeAnswer(proto::ABORTED));
        }
        for (auto& parked : parked_tickets_.TakeAll()) {
          proto::TakeTicketResponse response = TicketAnswer();
          response.set_verdict(proto::ABORTED);
          parked.reply(std::move(response));
        }
        RetryRegisters(std::nullopt);
        Answer(parked_renewals_.TakeAll());
        Answer(parked_checkpoints_.TakeBetween(0, durable_step_));
        RestoreWhenReady();
      });
}

// ---- Checkpoints ----

bool Coordinator::SaveIsDue() const {
  if (archive_ == nullptr || saving_.has_value() ||
      state_.phase() != proto::TRAINING || !created_) {
    return false;
  }
  const absl::Time now = clock_->Now();
  if (now < save_not_before_) return false;
  if (concluding_since_.has_value()) return true;
  const uint64_t step = committed_.value();
  if (step == durable_step_) return false;
  if (save_wanted_ > durable_step_) return true;
  if (!parked_checkpoints_.Between(0, step).empty()) return true;
  return save_schedule_.IsDue(step, now);
}

void Coordinator::StartSave() {
  saving_.emplace();
  saving_->number = ++save_number_;
  save_schedule_.OnBegun(committed_.value(), clock_->Now());
  disk_watch_.Begin(options_.num_ps, clock_->Now());
  save_.Clear();
  *save_.mutable_sender() = Self();
  save_.set_number(saving_->number);
  applied_.clear();
  if (asynchronous()) {
    hold_.Clear();
    *hold_.mutable_sender() = Self();
    hold_.set_number(saving_->number);
    return StartBroadcast(Broadcast::kHold);
  }
  OnHeld();
}

// [C3] Every shard is at the same version, or will be with what it is sent.
void Coordinator::OnHeld() {
  std::set<uint64_t> applied;
  std::map<WorkerLife, PushSequence> first_left;
  for (const auto& [push, ticket] : tickets_.has_value()
                                        ? tickets_->out()
                                        : std::map<PushId, TicketPool::Out>()) {
    const auto found = applied_.find(push);
    if (found == applied_.end()) {
      first_left.emplace(push.from, push.sequence);
      continue;
    }
    applied.insert(ticket.index);
    AddApplied(found->second, ticket.index, save_.mutable_applied());
  }
  for (const auto& [task, session] : sessions_) {
    const WorkerLife life{task, session.incarnation};
    const auto left = first_left.find(life);
    saving_->through[life] = left == first_left.end()
                                 ? session.last_ticket
                                 : PushSequence(left->second.value() - 1);
  }
  proto::Manifest& manifest = saving_->manifest;
  *manifest.mutable_position() = PositionNow(applied);
  manifest.mutable_name()->set_generation(generation_.value());
  manifest.mutable_name()->set_step(manifest.position().step());
  *manifest.mutable_declaration() = *declaration_;
  manifest.set_finished(concluding_since_.has_value());
  save_.set_step(manifest.position().step());
  // Before a shard writes anything, so that it cannot take that for a remnant.
  archive_->RemoveOthers(&manifest.name());
  StartBroadcast(Broadcast::kSave);
}

proto::Position Coordinator::PositionNow(
    const std::set<uint64_t>& applied) const {
  proto::Position position;
  position.set_updates(updates_);
  Progress progress = progress_;
  std::optional<LossScaler> loss_scaler = loss_scaler_;
  DivergenceWatch divergence = *divergence_;
  uint64_t step = committed_.value();
  if (tickets_.has_value()) {
    std::set<uint64_t> left = tickets_->returned();
    for (const auto& [push, ticket] : tickets_->out()) {
      if (applied.count(ticket.index) == 0) {
        left.insert(ticket.index);
        continue;
      }
      AddUntold(push, ticket, &progress, &loss_scaler, &divergence);
      ++step;
    }
    position.set_next_ticket(tickets_->next());
    for (const uint64_t index : left) position.add_returned_tickets(index);
  }
  position.set_step(step);
  progress.AddTo(&position);
  if (loss_scaler.has_value()) loss_scaler->AddTo(&position);
  divergence.AddTo(&position);
  if (training_begun_.has_value()) {
    position.set_training_seconds(
        training_seconds_before_ +
        absl::ToDoubleSeconds(last_commit_ - *training_begun_));
  }
  return position;
}

// [C4]
void Coordinator::OnPinned() {
  saving_->shards.assign(options_.num_ps, {false, clock_->Now(), ""});
  disk_watch_.Begin(options_.num_ps, clock_->Now());
  saving_->manifest.mutable_files()->Clear();
  for (uint32_t ps = 0; ps < options_.num_ps; ++ps) {
    saving_->manifest.add_files();
  }
  AskForFiles();
}

void Coordinator::AskForFiles() {
  if (!saving_.has_value()) return;
  const uint64_t number = saving_->number;
  const absl::Time now = clock_->Now();
  for (uint32_t ps = 0; ps < options_.num_ps; ++ps) {
    if (!saving_.has_value() || saving_->number != number ||
        saving_->shards.empty()) {
      return;  // an answer came at once
    }
    Saving::Shard& shard = saving_->shards[ps];
    if (shard.done || shard.due > now) continue;
    shard.due = now + DiskPark() + options_.resend_after;
    proto::AwaitSavedRequest request;
    *request.mutable_sender() = Self();
    request.set_number(number);
    request.set_wait_ms(absl::ToInt64Milliseconds(DiskPark()));
    SendTo(ps, request, [this, number, ps](const auto& response) {
      OnFile(number, ps, response);
    });
  }
}

void Coordinator::OnFile(
    uint64_t number, uint32_t ps,
    const absl::StatusOr<proto::AwaitSavedResponse>& response) {
  if (!saving_.has_value() || saving_->number != number ||
      saving_->shards.empty() || saving_->shards[ps].done) {
    return;
  }
  Saving::Shard& shard = saving_->shards[ps];
  if (!response.ok()) {
    if (IsTransient(response.status())) {
      shard.due = clock_->Now() + kAskAgainAfter;
      if (shard.trouble != response.status().message()) {
        shard.trouble = std::string(response.status().message());
        LOG(WARNING) << "/job:ps/task:" << ps
                     << " is asked again for its share: " << response.status();
      }
      return;
    }
    saving_->error.Update(absl::Status(
        response.status().code(),
        absl::StrCat("/job:ps/task:", ps, ": ", response.status().message())));
  } else if (!response->has_file()) {
    shard.due = clock_->Now();  // with the next tick
    disk_watch_.OnProgress(ps, response->progress(), clock_->Now());
    return;
  } else {
    *saving_->manifest.mutable_files(ps) = response->file();
  }
  shard.done = true;
  disk_watch_.OnDone(ps, clock_->Now());
  if (!std::all_of(saving_->shards.begin(), saving_->shards.end(),
                   [](const auto& s) { return s.done; })) {
    return;
  }
  if (!saving_->error.ok()) return AbandonSave(saving_->error);
  WriteManifest();
}

void Coordinator::WriteManifest() {
  const uint64_t number = saving_->number;
  archive_->WriteManifest(
      saving_->manifest, [this, number](const absl::StatusOr<Done>& done) {
        if (!saving_.has_value() || saving_->number != number) return;
        if (!done.ok()) return AbandonSave(done.status());
        const uint32_t keep = declaration_->checkpoints().has_keep()
                                  ? declaration_->checkpoints().keep()
                                  : kDefaultKeep;
        ChangeJournal(
            [name = saving_->manifest.name(),
             finished = saving_->manifest.finished(),
             keep](proto::Journal* journal) {
              // The last of all may stand there already, not as the end.
              const auto& kept = journal->checkpoints();
              if (kept.empty() || kept.rbegin()->step() != name.step() ||
                  kept.rbegin()->generation() != name.generation()) {
                *journal->add_checkpoints() = name;
              }
              const int surplus =
                  journal->checkpoints_size() - static_cast<int>(keep);
              if (surplus > 0) {
                journal->mutable_checkpoints()->DeleteSubrange(0, surplus);
              }
              journal->set_finished(finished);
            },
            [this, number] {
              if (saving_.has_value() && saving_->number == number) OnSaved();
            });
      });
}

void Coordinator::OnSaved() {
  const Saving saved = *std::exchange(saving_, std::nullopt);
  disk_watch_.End();
  durable_step_ = saved.manifest.position().step();
  durable_through_ = saved.through;
  checkpoint_error_.clear();
  const absl::Time now = clock_->Now();
  save_schedule_.OnSaved(now);
  LOG(INFO) << "checkpoint of " << Text(saved.manifest.name())
            << " is on disk, "
            << absl::FormatDuration(now - save_schedule_.begun())
            << " after it was begun";
  Answer(parked_checkpoints_.TakeBetween(0, durable_step_));
  if (ended()) return;
  if (saved.manifest.finished()) {
    archive_->RemoveOthers(nullptr);
    return Finish();
  }
  Proceed();
}

void Coordinator::AbandonSave(const absl::Status& why) {
  LOG(ERROR) << "checkpoint of " << Text(saving_->manifest.name())
             << " cannot be written; training goes on: " << why;
  checkpoint_error_ = std::string(why.message());
  saving_.reset();
  disk_watch_.End();
  const absl::Time now = clock_->Now();
  save_schedule_.OnFailed(now);
  save_not_before_ =
      now + (concluding_since_.has_value() ? kDiskRetryAfter : kSaveRetryAfter);
  save_wanted_ = 0;
  Answer(parked_checkpoints_.TakeAll(), checkpoint_error_);
  if (!concluding_since_.has_value() || ended()) return;
  conclusion_failing_since_ = std::min(conclusion_failing_since_, now);
  if (now - conclusion_failing_since_ >= RecoveryTimeout()) {
    Fail(absl::StrCat("the last checkpoint cannot be written: ",
                      checkpoint_error_));
  }
}

void Coordinator::Checkpoint(const proto::CheckpointRequest& request,
                             Reply<proto::CheckpointResponse> reply) {
  if (state_.phase() == proto::FAILED) {
    return reply(absl::AbortedError(state_.reason()));
  }
  if (archive_ == nullptr) {
    return reply(absl::FailedPreconditionError(
        "/job:ps/task:0 has no checkpoint directory (--checkpoint_dir)"));
  }
  if (!declaration_.has_value()) {
    return reply(absl::FailedPreconditionError(absl::StrCat(
        "there are no variables yet: waiting for ", WaitingFor())));
  }
  const uint64_t step =
      std::min(request.has_step() ? request.step() : committed_.value(),
               declaration_->total_steps());
  if (step <= durable_step_ || ended())
    return reply(CheckpointAnswer(step, ""));
  // One that is ahead is due when it is reached.
  if (step <= committed_.value()) save_wanted_ = std::max(save_wanted_, step);
  const absl::Time now = clock_->Now();
  const bool at_once = request.wait_ms() == 0 || parked_checkpoints_.full();
  parked_checkpoints_.Park(step, std::move(reply),
                           at_once ? now : ParkedUntil(now, request.wait_ms()));
  Proceed();
  if (at_once) Answer(parked_checkpoints_.TakeDue(now));
}

proto::CheckpointResponse Coordinator::CheckpointAnswer(
    uint64_t step, const std::string& error) const {
  proto::CheckpointResponse response;
  response.set_generation(generation_.value());
  *response.mutable_state() = state_;
  response.set_step(step);
  response.set_durable_step(durable_step_);
  response.set_error(error);
  return response;
}

void Coordinator::Answer(std::vector<ParkedCheckpoints::Call> requests,
                         const std::string& error) {
  for (auto& parked : requests) {
    parked.reply(CheckpointAnswer(parked.key, error));
  }
}

}  // namespace holdfast
