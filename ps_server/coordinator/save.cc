// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/save.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/printable_text.h"
#include "glog/logging.h"
#include "ps_server/protocol/request.h"

namespace holdfast {
namespace {

// The time from a failed checkpoint to the next.
constexpr absl::Duration kRetryAfter = absl::Seconds(10);
// Users are told when no byte of a checkpoint has been written for this long.
constexpr absl::Duration kStandingDisk = absl::Seconds(30);
// The default of TensorFlow's Saver.
constexpr uint32_t kDefaultKeep = 5;

// Adds the checkpoint to the journal, which names at most `keep` checkpoints
// besides those that evaluations need.
void AddCheckpoint(const proto::Manifest& manifest, uint32_t keep,
                   const Evaluations& evaluations, proto::Journal* journal) {
  const proto::CheckpointName& name = manifest.name();
  // The journal may already name the final checkpoint, as an ordinary one.
  const auto& kept = journal->checkpoints();
  if (kept.empty() || kept.rbegin()->step() != name.step() ||
      kept.rbegin()->generation() != name.generation()) {
    *journal->add_checkpoints() = name;
  }
  auto* const names = journal->mutable_checkpoints();
  const auto is_free = [&](const proto::CheckpointName& one) {
    return !evaluations.Holds(one);
  };
  auto surplus = std::count_if(names->begin(), names->end(), is_free) -
                 static_cast<int64_t>(keep);
  for (auto it = names->begin(); surplus > 0;) {
    if (is_free(*it)) {
      it = names->erase(it);
      --surplus;
    } else {
      ++it;
    }
  }
  journal->set_finished(manifest.finished());
}

// Returns `why`, with the name of the ps whose disk failed. Errors from other
// ps name it already.
absl::Status OfPs(uint32_t ps, const absl::Status& why) {
  const std::string name = TaskId{kPsJob, ps}.ToString();
  if (absl::StrContains(why.message(), name)) return why;
  return absl::Status(why.code(), absl::StrCat(name, ": ", why.message()));
}

}  // namespace

Save::Save(Job* job)
    : job_(job),
      hold_(&job->speech,
            {[this](uint32_t ps,
                    const absl::StatusOr<proto::HoldResponse>& response) {
               if (response.ok()) applied_.Add(response->applied());
               return job_->OnAcknowledged(ps, response);
             },
             [this] { OnHeld(); }}),
      save_(&job->speech, {[job](uint32_t ps, const auto& response) {
                             return job->OnAcknowledged(ps, response);
                           },
                           [this] { OnPinned(); }}),
      await_(&job->speech, {[this](uint32_t ps, const auto& response) {
                              return OnShare(ps, response);
                            },
                            [this] { OnShares(); }}) {}

void Save::GoBack(uint64_t step) {
  durable_step_ = step;
  durable_through_.clear();
  chain_.Clear();
  wanted_ = 0;
  AnswerThese(parked_.TakeBetween(0, durable_step_));
}

void Save::OnRestored(const proto::Manifest& from) {
  if (from.has_name()) chain_.OnDurable(from);
  schedule_.Begin(job_->declared->checkpoints(), job_->declared.asynchronous(),
                  from.position().step(), job_->clock->Now());
}

void Save::Abort() {
  if (job_->running == this) job_->running = nullptr;
  Stop();
  saving_.reset();
  writing_ = false;
  await_.Stop();
  watch_.End();
  concluding_since_.reset();
  conclusion_failing_since_ = absl::InfiniteFuture();
}

void Save::Conclude() {
  if (concluding_since_.has_value()) return;
  concluding_since_ = job_->clock->Now();
  not_before_ = absl::InfinitePast();
}

// 1.
bool Save::IsDue() const {
  if (job_->archive == nullptr || saving_.has_value() || !job_->at_work()) {
    return false;
  }
  // [E2] The pushes in flight are decided first.
  if (job_->stopping() &&
      (job_->step.open() || !concluding_since_.has_value())) {
    return false;
  }
  const absl::Time now = job_->clock->Now();
  if (now < not_before_) return false;
  if (concluding_since_.has_value()) return true;
  const uint64_t step = job_->progress.committed().value();
  if (step == durable_step_) return false;
  if (job_->evaluations.NeedsCheckpointOf(step)) return true;
  if (wanted_ > durable_step_ && wanted_ <= step) return true;
  if (!parked_.Between(0, step).empty()) return true;
  return schedule_.IsDue(step, now);
}

void Save::Start() {
  job_->running = this;
  saving_.emplace();
  ++number_;
  const absl::Time now = job_->clock->Now();
  schedule_.OnBegun(job_->progress.committed().value(), now);
  tally_.OnBegun(now);
  watch_.Begin(job_->options.num_ps, now);
  applied_.Clear();
  if (!job_->declared.asynchronous()) return OnHeld();
  // 2.
  proto::HoldRequest& hold = *hold_.NewRequest();
  *hold.mutable_sender() = job_->Self();
  hold.set_number(number_);
  hold_.Start();
}

void Save::Stop() {
  hold_.Stop();
  save_.Stop();
}

void Save::Tick() {
  hold_.SendDue();
  save_.SendDue();
  await_.SendDue();
}

std::string Save::WaitingFor() const {
  return hold_.running() ? hold_.WaitingFor() : save_.WaitingFor();
}

// 3. Every shard is at the same version, or will be once it has applied the
//    pushes that it is sent.
void Save::OnHeld() {
  proto::SaveRequest& save = *save_.NewRequest();
  *save.mutable_sender() = job_->Self();
  save.set_number(number_);
  std::set<PushId> applied;
  if (job_->tickets.open()) {
    for (const auto& [push, ticket] : job_->tickets.pool().out()) {
      if (!applied_.Contains(push)) continue;
      applied.insert(push);
      applied_.Tell(push, ticket.index, *job_->declared, job_->learning,
                    job_->rates.FactorAt(ticket.index), save.mutable_applied());
    }
  }
  saving_->last = job_->stopping() && !job_->AllMade();
  save.set_last(saving_->last && job_->declared.asynchronous());
  saving_->through = job_->tickets.Through(applied);
  proto::Manifest& manifest = saving_->manifest;
  *manifest.mutable_position() = PositionNow();
  manifest.mutable_name()->set_generation(job_->generation.value());
  manifest.mutable_name()->set_step(manifest.position().step());
  *manifest.mutable_declaration() = *job_->declared;
  manifest.set_finished(concluding_since_.has_value() && job_->AllMade());
  save.set_changes(chain_.AddTo(&manifest));
  save.set_durable_step(manifest.previous().step());
  save.set_step(manifest.position().step());
  // Sent before any shard writes, so that new files are not taken for remnants.
  job_->outbox.Send([archive = job_->archive, name = manifest.name()] {
    archive->RemoveOthers(&name);
  });
  save_.Start();
}

// The position with all spent tickets, and those tickets that are out whose
// pushes have been applied; other tickets that are out count as unspent.
proto::Position Save::PositionNow() const {
  proto::Position position;
  Progress progress = job_->progress;
  LearningState learning = job_->learning;
  uint64_t step = progress.committed().value();
  if (job_->tickets.open()) {
    const TicketPool& pool = job_->tickets.pool();
    std::set<uint64_t> left = pool.returned();
    for (const auto& [push, ticket] : pool.out()) {
      if (!applied_.Contains(push)) {
        left.insert(ticket.index);
        continue;
      }
      applied_.Count(push, ticket, &progress, &learning);
      ++step;
    }
    position.set_next_ticket(pool.next());
    for (const uint64_t index : left) position.add_returned_tickets(index);
  }
  position.set_step(step);
  position.set_learning_rate_factor(
      job_->rates.FactorAt(job_->tickets.open() && job_->declared.asynchronous()
                               ? position.next_ticket()
                               : step));
  progress.AddTo(&position);
  learning.AddTo(&position);
  return position;
}

// 4.
void Save::OnPinned() {
  job_->running = nullptr;
  writing_ = true;
  watch_.Begin(job_->options.num_ps, job_->clock->Now());
  saving_->manifest.mutable_files()->Clear();
  for (uint32_t ps = 0; ps < job_->options.num_ps; ++ps) {
    saving_->manifest.add_files();
  }
  proto::AwaitSavedRequest& await = *await_.NewRequest();
  *await.mutable_sender() = job_->Self();
  await.set_number(number_);
  await.set_wait_ms(absl::ToInt64Milliseconds(job_->timeouts.DiskPark()));
  await_.Start();
}

Heard Save::OnShare(uint32_t ps,
                    const absl::StatusOr<proto::AwaitSavedResponse>& response) {
  if (!response.ok()) {
    saving_->error.Update(OfPs(ps, response.status()));
  } else if (!response->has_file()) {
    watch_.OnProgress(ps, response->progress(), job_->clock->Now());
    return Heard::kNotYet;
  } else {
    *saving_->manifest.mutable_files(ps) = response->file();
  }
  watch_.OnDone(ps, job_->clock->Now());
  return Heard::kDone;
}

void Save::OnShares() {
  if (!saving_->error.ok()) return GiveUp(saving_->error);
  WriteManifest();
}

// 5.
void Save::WriteManifest() {
  job_->outbox.Send([this, number = number_, manifest = saving_->manifest] {
    job_->archive->WriteManifest(
        manifest,
        job_->outbox.AsEvent<Done>([this, number](absl::StatusOr<Done> done) {
          if (!IsTaking(number)) return;
          if (!done.ok()) return GiveUp(OfPs(0, done.status()));
          OnManifest();
        }));
  });
}

void Save::OnManifest() {
  tally_.OnWritten(saving_->manifest, job_->clock->Now());
  // A job that is found finished must have its whole history.
  if (saving_->manifest.finished()) job_->chronicle.Write();
  const proto::Checkpoints& config = job_->declared->checkpoints();
  const uint32_t keep = config.has_keep() ? config.keep() : kDefaultKeep;
  job_->journal.Change(
      [job = job_, manifest = saving_->manifest,
       keep](proto::Journal* journal) {
        AddCheckpoint(manifest, keep, job->evaluations, journal);
        // The steps up to the checkpoint were made with these changes.
        job->rates.AddTo(journal->mutable_learning_rate_changes());
      },
      [this, number = number_] {
        if (IsTaking(number)) OnSaved();
      });
}

void Save::OnSaved() {
  const Saving saved = *std::exchange(saving_, std::nullopt);
  writing_ = false;
  watch_.End();
  durable_step_ = saved.manifest.position().step();
  chain_.OnDurable(saved.manifest);
  durable_through_ = saved.through;
  error_ = absl::OkStatus();
  told_kind_.clear();
  const absl::Time now = job_->clock->Now();
  schedule_.OnSaved(now);
  job_->Tell(proto::Event::CHECKPOINT,
             absl::StrCat("the checkpoint of ", ToString(saved.manifest.name()),
                          " is on disk, ",
                          absl::FormatDuration(absl::Trunc(
                              now - schedule_.begun(), absl::Milliseconds(1))),
                          " after it was begun"));
  job_->chronicle.Write();
  AnswerThese(parked_.TakeBetween(0, durable_step_));
  if (job_->ended() || !(saved.manifest.finished() || saved.last)) return;
  job_->outbox.Send(
      [archive = job_->archive] { archive->RemoveOthers(nullptr); });
  if (saved.last) {
    job_->director->OnSavedToStop(saved.manifest.position());
  } else {
    job_->director->OnFinished();
  }
}

void Save::GiveUp(const absl::Status& why) {
  LOG(ERROR) << "checkpoint of " << ToString(saving_->manifest.name())
             << " cannot be written; training continues: " << why;
  error_ = why;
  tally_.OnFailed();
  saving_.reset();
  writing_ = false;
  watch_.End();
  const absl::Time now = job_->clock->Now();
  schedule_.OnFailed(now);
  not_before_ =
      now + (concluding_since_.has_value() ? kDiskRetryAfter : kRetryAfter);
  wanted_ = 0;
  TellOfTrouble();
  AnswerThese(parked_.TakeAll(), std::string(error_.message()));
  if (!concluding_since_.has_value() || job_->ended()) return;
  conclusion_failing_since_ = std::min(conclusion_failing_since_, now);
  if (now - conclusion_failing_since_ >= job_->timeouts.Recovery()) {
    job_->director->FailUnlessFinishing(absl::StrCat(
        "the last checkpoint cannot be written: ", error_.message()));
  }
}

// ---- For others ----

void Save::Checkpoint(const proto::CheckpointRequest& request,
                      Reply<proto::CheckpointResponse> reply) {
  // Includes the pushes that workers have been told are accepted, even if their
  // Commit is still in progress.
  const uint64_t reached = job_->step.open()
                               ? job_->step.number().value()
                               : job_->progress.committed().value();
  const uint64_t step = std::min(request.has_step() ? request.step() : reached,
                                 job_->total_steps());
  if (step <= durable_step_ || job_->ended()) {
    return job_->outbox.Answer(std::move(reply), Answer(step, ""));
  }
  // A checkpoint of a later step becomes due when the job reaches that step.
  if (step <= reached) wanted_ = std::max(wanted_, step);
  if (request.wait_ms() == 0 || parked_.full()) {
    return job_->outbox.Answer(std::move(reply), Answer(step, ""));
  }
  parked_.Park(step, std::move(reply),
               ParkedUntil(job_->clock->Now(), request.wait_ms()));
}

proto::CheckpointResponse Save::Answer(uint64_t step,
                                       const std::string& error) const {
  proto::CheckpointResponse response;
  response.set_generation(job_->generation.value());
  *response.mutable_state() = job_->state;
  response.set_step(step);
  response.set_durable_step(durable_step_);
  response.set_error(PrintableText(error));
  return response;
}

void Save::AnswerThese(std::vector<Parked::Call> calls,
                       const std::string& error) {
  for (Parked::Call& call : calls) {
    job_->outbox.Answer(std::move(call.reply), Answer(call.key, error));
  }
}

void Save::AnswerAll() { AnswerThese(parked_.TakeAll()); }

void Save::AnswerDue() { AnswerThese(parked_.TakeDue(job_->clock->Now())); }

void Save::AddTo(proto::GetStatusResponse* status) const {
  status->set_durable_step(durable_step_);
  status->set_checkpoint_error(PrintableText(trouble().text));
  tally_.AddTo(job_->clock->Now(), status->mutable_checkpoints());
  watch_.AddTo(status);
}

Save::Trouble Save::trouble() const {
  const absl::Duration standing = job_->clock->Now() - watch_.standing_since();
  if (writing_ && standing > kStandingDisk) {
    return {"standing",
            absl::StrCat(
                "the checkpoint of step ", saving_->manifest.position().step(),
                " has made no progress for ",
                absl::FormatDuration(absl::Trunc(standing, absl::Seconds(1))),
                " at ", absl::StrJoin(UnwrittenShares(), ", "))};
  }
  if (!job_->journal.trouble().empty()) {
    return {"journal", absl::StrCat("the journal cannot be written: ",
                                    job_->journal.trouble())};
  }
  if (error_.ok()) return {};
  return {absl::StrCat("share ", static_cast<int>(error_.code())),
          std::string(error_.message())};
}

void Save::TellOfTrouble() {
  const Trouble now = trouble();
  if (now.kind.empty() || now.kind == told_kind_) return;
  told_kind_ = now.kind;
  job_->Tell(proto::Event::CHECKPOINT_FAILED,
             absl::StrCat("checkpoints cannot be written: ", now.text));
}

}  // namespace holdfast
