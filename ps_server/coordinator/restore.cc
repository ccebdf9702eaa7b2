// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/restore.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/printable_text.h"
#include "common/base/status_macros.h"
#include "common/tensor/row_bucket.h"
#include "glog/logging.h"
#include "ps_server/protocol/memory_plan.h"
#include "ps_server/protocol/warm_slots.h"

namespace holdfast {

Restore::Restore(Job* job)
    : job_(job),
      generation_begun_(job->clock->Now()),
      restore_(&job->speech, {[this](uint32_t ps, const auto& response) {
                                return OnShard(ps, response);
                              },
                              [this] { OnRestored(); }}) {}

// 1.
void Restore::BeginGeneration(const std::string& why) {
  if (job_->ended() || beginning_) return;
  beginning_ = true;
  not_before_ = absl::InfinitePast();
  recovered_ = PrintableText(why);
  generation_begun_ = job_->clock->Now();
  job_->state.set_phase(proto::STARTING);
  job_->created = false;
  watch_.End();
  if (job_->running != nullptr) job_->running->Stop();
  job_->running = nullptr;
  job_->director->OnGenerationOver();
}

void Restore::Advance() {
  if (!beginning_ || reading_manifest_ || !job_->journal.idle() ||
      job_->clock->Now() < not_before_) {
    return;
  }
  ChooseCheckpoint();
}

// 2.
void Restore::ChooseCheckpoint() {
  const proto::Journal& journal = job_->journal.journal();
  from_.Clear();
  if (journal.checkpoints().empty()) return StartGeneration();
  // [J1] The new generation makes the incarnations of this life differ from
  // those of others.
  if (job_->finished_before) return StartGeneration();
  if (journal.finished()) {
    // The journal was written when the previous generation was already over.
    beginning_ = false;
    job_->director->OnFinished();
    return job_->members.RetryRegisters(std::nullopt);
  }
  reading_manifest_ = true;
  job_->outbox.Send([this, name = *journal.checkpoints().rbegin()] {
    job_->archive->ReadManifest(
        name, job_->outbox.AsEvent<proto::Manifest>(
                  [this](const absl::StatusOr<proto::Manifest>& found) {
                    reading_manifest_ = false;
                    OnManifest(found);
                  }));
  });
}

void Restore::OnManifest(const absl::StatusOr<proto::Manifest>& manifest) {
  if (job_->ended()) return;
  const absl::Status& status = manifest.status();
  if (status.ok()) {
    unreadable_.Clear();
    trouble_.clear();
    from_ = *manifest;
    return StartGeneration();
  }
  const absl::Time now = job_->clock->Now();
  if (absl::IsDataLoss(status) || absl::IsNotFound(status) ||
      (absl::IsUnknown(status) &&
       unreadable_.Count(now, job_->timeouts.Disk()))) {
    DropCheckpoint(status);
    return;
  }
  LOG(ERROR) << "a checkpoint cannot be read: " << status;
  trouble_ = std::string(status.message());
  not_before_ = now + kDiskRetryAfter;
}

bool Restore::DropCheckpoint(const absl::Status& why) {
  const proto::Journal& journal = job_->journal.journal();
  const proto::CheckpointName name = *journal.checkpoints().rbegin();
  if (journal.checkpoints_size() == 1) {
    job_->director->FailUnlessFinishing(absl::StrCat(
        "the checkpoint of ", ToString(name),
        " cannot be read, and there is none before it: ", why.message()));
    return false;
  }
  LOG(ERROR) << "the checkpoint of " << ToString(name)
             << " cannot be read, so the job resumes from the one before it: "
             << why;
  unreadable_.Clear();
  trouble_.clear();
  // The checkpoint is set aside before the journal is changed, so that a new
  // life finds the checkpoint either in the journal or set aside.
  job_->outbox.Send(
      [archive = job_->archive, name] { archive->SetAside(name); });
  job_->journal.Change(
      [](proto::Journal* changed) {
        changed->mutable_checkpoints()->RemoveLast();
      },
      [] {});
  return true;
}

// 3.
void Restore::StartGeneration() {
  const uint64_t next = job_->journal.journal().generation() + 1;
  job_->journal.Change(
      [next](proto::Journal* journal) { journal->set_generation(next); },
      [this, next] {
        if (job_->ended()) return;
        job_->generation = Generation(next);
        beginning_ = false;
        const proto::Position& position = from_.position();
        if (next > 1) {
          absl::StrAppend(&recovered_, "; resumes from step ", position.step());
        }
        job_->director->OnGenerationBegun(position);
      });
}

// 4.
bool Restore::IsDue() const {
  return job_->state.phase() == proto::STARTING && !beginning_ &&
         job_->declared.has_value() && job_->declared.settled() &&
         !job_->finished_before &&
         (job_->archive == nullptr ||
          job_->journal.journal().has_declaration()) &&
         job_->members.MissingPs().empty();
}

void Restore::Start() {
  const proto::Declaration& declared = *job_->declared;
  for (uint32_t ps = 0; ps < job_->options.num_ps; ++ps) {
    const auto plan = PlanMemory(
        declared, job_->declared.slices(), ps, job_->members.memory_limit(ps),
        /*lends=*/false, BucketsOfPs(ps, job_->options.num_ps));
    if (!plan.ok()) {
      return job_->director->FailUnlessFinishing(
          std::string(plan.status().message()));
    }
  }
  if (absl::Status status = TakeSlotsOver(); !status.ok()) {
    return job_->director->FailUnlessFinishing(std::string(status.message()));
  }
  job_->running = this;
  proto::RestoreRequest& restore = *restore_.NewRequest();
  *restore.mutable_sender() = job_->Self();
  *restore.mutable_declaration() = declared;
  restore.mutable_declaration()->clear_agreed();  // concerns workers only
  restore.mutable_slices()->Assign(job_->declared.slices().begin(),
                                   job_->declared.slices().end());
  restore.set_receipt_key(job_->verdicts.MakeReceipts(
      job_->options.receipt_secret, job_->generation, job_->declared,
      job_->options.num_ps));
  if (job_->archive != nullptr) {
    restore.set_directory_nonce(job_->journal.journal().directory_nonce());
  }
  if (from_.has_name()) {
    *restore.mutable_checkpoint() = from_.name();
  } else {
    restore.set_warm_start(job_->options.warm_start);
    restore.set_warm_start_slots(job_->options.warm_slots_from.has_value());
  }
  if (!job_->declared.asynchronous()) {
    const LearningState learning(declared, from_.position());
    if (learning.has_loss_scale()) {
      restore.set_loss_scale(learning.loss_scale());
    }
  }
  restore.set_wait_ms(absl::ToInt64Milliseconds(job_->timeouts.DiskPark()));
  needs_disk_ = restore.has_checkpoint() || !restore.warm_start().empty();
  if (needs_disk_) watch_.Begin(job_->options.num_ps, job_->clock->Now());
  restore_.Start();
}

absl::Status Restore::TakeSlotsOver() {
  if (from_.has_name() || !job_->options.warm_slots_from.has_value()) {
    return absl::OkStatus();
  }
  HOLDFAST_ASSIGN_OR_RETURN(
      const auto plan,
      PlanWarmSlots(*job_->declared, *job_->options.warm_slots_from));
  from_.mutable_position()->mutable_updates_before()->Assign(
      plan.updates_before.begin(), plan.updates_before.end());
  LOG(INFO) << "warm start from " << job_->options.warm_start << ": "
            << plan.taken.size() << " of "
            << plan.taken.size() + plan.anew.size()
            << " variables keep their optimizer slots"
            << (plan.anew.empty() ? "" : "; these start with new slots: ")
            << absl::StrJoin(plan.anew, ", ");
  return absl::OkStatus();
}

Heard Restore::OnShard(uint32_t ps,
                       const absl::StatusOr<proto::RestoreResponse>& response) {
  const absl::Status& status = response.status();
  const absl::Time now = job_->clock->Now();
  if (status.ok() && response->pending()) {
    if (response->wants_values_of().empty()) {
      watch_.OnProgress(ps, response->progress(), now);
      return Heard::kNotYet;
    }
    watch_.OnDone(ps, now);
    const bool first = wants_values_.empty();
    wants_values_[ps] = response->wants_values_of();
    if (first) job_->director->OnValuesWanted();
    return Heard::kNotYet;
  }
  const bool damaged = absl::IsDataLoss(status) || absl::IsNotFound(status);
  if (damaged && restore_.request().has_checkpoint()) {
    if (DropCheckpoint(status)) {
      BeginGeneration(
          absl::StrCat("/job:ps/task:", ps, " could not read its checkpoint"));
    }
    return Heard::kBroken;
  }
  if (!status.ok()) return job_->OnRefused(ps, status);
  wants_values_.erase(ps);
  watch_.OnDone(ps, now);
  return Heard::kDone;
}

// 5.
void Restore::OnRestored() {
  job_->running = nullptr;
  job_->created = true;
  watch_.End();
  job_->director->OnRestored(from_);
}

void Restore::Stop() {
  wants_values_.clear();
  restore_.Stop();
  watch_.End();
}

void Restore::Abort() {
  beginning_ = false;
  Stop();
}

std::string Restore::WaitingFor() const {
  if (wants_values_.empty() ||
      restore_.Silent().size() > wants_values_.size()) {
    return restore_.WaitingFor(&watch_);
  }
  std::vector<std::string> missing;
  for (const auto& [ps, variable] : wants_values_) {
    missing.push_back(
        absl::StrCat("variable \"", variable, "\" at /job:ps/task:", ps));
  }
  return absl::StrCat("a worker that gives the first values of ",
                      absl::StrJoin(missing, ", "));
}

std::string Restore::WaitingForJournal() const {
  const std::string& trouble =
      trouble_.empty() ? job_->journal.trouble() : trouble_;
  return absl::StrCat("the journal of /job:ps/task:0",
                      trouble.empty() ? "" : ": ", trouble);
}

}  // namespace holdfast
