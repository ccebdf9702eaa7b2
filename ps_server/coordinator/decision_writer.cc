// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/decision_writer.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace holdfast {
namespace {

template <typename Names>
bool HasName(const Names& names, const proto::CheckpointName& name) {
  return std::any_of(names.begin(), names.end(), [&](const auto& one) {
    return SameCheckpoint(one, name);
  });
}

}  // namespace

void DecisionWriter::OnChanged(Then then) {
  ++changed_;
  if (job_->archive == nullptr) saved_ = changed_;
  if (!then) return;
  if (saved()) return then(absl::OkStatus());
  waiting_.push_back({changed_, std::move(then)});
}

void DecisionWriter::Advance() {
  if (writing_ && job_->journal.idle()) GiveUp();
  if (linking_ || writing_ || saved() || given_up_ == changed_ ||
      job_->ended_early()) {
    return;
  }
  const proto::Journal& journal = job_->journal.journal();
  const std::vector<proto::CheckpointName> best =
      job_->evaluations.Best(journal);
  for (const proto::CheckpointName& name : best) {
    if (!HasName(journal.best(), name) && !HasName(linked_, name)) {
      return Link(name);
    }
  }
  Write(best);
}

// 1.
void DecisionWriter::Link(const proto::CheckpointName& name) {
  linking_ = true;
  job_->outbox.Send([this, name] {
    job_->archive->KeepBest(
        name,
        job_->outbox.AsEvent<Done>([this, name](absl::StatusOr<Done> done) {
          linking_ = false;
          if (done.ok()) {
            linked_.push_back(name);
            return;
          }
          job_->evaluations.Forsake(name);
          job_->Tell(proto::Event::CHECKPOINT_FAILED,
                     absl::StrCat("the checkpoint of ", ToString(name),
                                  " cannot be kept among the best: ",
                                  done.status().message()));
        }));
  });
}

// 2.
void DecisionWriter::Write(const std::vector<proto::CheckpointName>& best) {
  writing_ = true;
  job_->journal.Change(
      [this, best, change = changed_](proto::Journal* journal) {
        job_->evaluations.AddTo(journal);
        job_->rates.AddTo(journal->mutable_learning_rate_changes());
        if (job_->finish.has_value()) {
          *journal->mutable_early_end() = *job_->finish;
        }
        journal->mutable_best()->Assign(best.begin(), best.end());
      },
      [this, best, change = changed_] {
        writing_ = false;
        for (const proto::CheckpointName& name : best) {
          if (!HasName(linked_, name)) continue;
          job_->Tell(proto::Event::BEST,
                     absl::StrCat("the checkpoint of ", ToString(name),
                                  " is kept among the best"));
        }
        linked_.clear();
        // 3.
        job_->outbox.Send(
            [archive = job_->archive] { archive->RemoveOthersOfBest(); });
        Answer(change, absl::OkStatus());
      });
}

void DecisionWriter::GiveUp() {
  writing_ = false;
  given_up_ = changed_;
  Answer(changed_,
         absl::UnavailableError("/job:ps/task:0 cannot write its journal"));
}

void DecisionWriter::Answer(uint64_t through, const absl::Status& status) {
  if (status.ok()) saved_ = through;
  while (!waiting_.empty() && waiting_.front().change <= through) {
    Then then = std::move(waiting_.front().then);
    waiting_.pop_front();
    then(status);
  }
}

void DecisionWriter::OnJournalStopped() {
  if (job_->journal.idle()) writing_ = false;
}

void DecisionWriter::OnEnded(const absl::Status& why) { Answer(changed_, why); }

}  // namespace holdfast
