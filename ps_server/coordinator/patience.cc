// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/patience.h"

#include <algorithm>
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace holdfast {

void Patience::Judge() {
  const absl::Time now = job_->clock->Now();
  if (!job_->members.MayJudge()) return;
  if (job_->ended()) return JudgeDone(now);
  if (const Lost lost = LostTasks(); !lost.tasks.empty()) {
    missing_until_ = now;
    return JudgeLost(lost, now);
  }
  if (save_->concluding_since().has_value()) return JudgeEnd(now);
  if (job_->running == restore_ && restore_->is_reading()) {
    return JudgeRestore(now);
  }
  if (!job_->progress.training_begun().has_value() ||
      job_->state.phase() == proto::STARTING) {
    return JudgeStart(now);
  }
  JudgeStep(now);
}

void Patience::JudgeDone(absl::Time now) {
  if (!IsOrderlyEnd(job_->state.phase()) ||
      now - end_->ended_at() <= job_->timeouts.Step()) {
    return;
  }
  // The workers have everything that they need; the job ends without them.
  job_->members.GiveUpWorkers();
}

Patience::Lost Patience::LostTasks() const {
  Lost lost;
  const Members& members = job_->members;
  const bool goes_on = job_->declared.continues();
  // When workers were lost, but not before the generation began, because the
  // previous one may not have needed them any more. Sorted below, latest first.
  std::vector<absl::Time> losses;
  const bool wait_for_workers =
      !job_->AllStepsFixed() &&
      (!goes_on || (job_->created && job_->TooFewWorkers()));
  for (const TaskId& task : members.lost()) {
    if (IsEvaluator(task)) continue;
    if (IsWorker(task) && !wait_for_workers) continue;
    const absl::Time lost_at = members.Find(task)->lost_at;
    lost.tasks.push_back(task);
    if (IsWorker(task)) {
      losses.push_back(std::max(lost_at, restore_->generation_begun()));
    } else {
      lost.since = std::min(lost.since, lost_at);
    }
  }
  if (losses.empty()) return lost;
  std::sort(losses.begin(), losses.end(), std::greater<>());
  // With CONTINUE, the wait begins with the loss that left too few workers.
  const size_t missed = goes_on
                            ? job_->declared->lost_workers().min_replicas() -
                                  members.num_live_workers()
                            : losses.size();
  lost.since =
      std::min(lost.since, losses[std::min(missed, losses.size()) - 1]);
  return lost;
}

void Patience::JudgeLost(const Lost& lost, absl::Time now) {
  if (now - lost.since <= job_->timeouts.Recovery()) return;
  std::vector<std::string> names;
  for (const TaskId& task : lost.tasks) {
    names.push_back(job_->members.Describe(task));
  }
  job_->director->FailUnlessFinishing(
      absl::StrCat(absl::StrJoin(names, ", "), ": nothing was heard for ",
                   absl::FormatDuration(now - lost.since + job_->options.lease),
                   ", and no replacement joined"));
}

// A restore may take any time, provided that it makes progress.
void Patience::JudgeRestore(absl::Time now) {
  const absl::Duration still =
      now - std::max(restore_->watch().standing_since(), missing_until_);
  if (still <= job_->timeouts.Disk()) return;
  job_->director->FailUnlessFinishing(
      absl::StrCat("nothing was read for ", absl::FormatDuration(still),
                   ": waited for ", job_->director->WaitingFor()));
}

// [C5] The same holds for the last checkpoint. Save::GiveUp limits its retries.
void Patience::JudgeEnd(absl::Time now) {
  const bool writing = save_->writing();
  const absl::Time since =
      writing ? save_->watch().standing_since()
              : std::max(*save_->concluding_since(), save_->idle_since());
  const absl::Duration limit =
      writing ? job_->timeouts.Disk()
              : std::max(job_->timeouts.Step(), job_->timeouts.Recovery());
  const absl::Duration still = now - std::max(since, missing_until_);
  if (still <= limit) return;
  job_->director->FailNow(absl::StrCat(
      "the job could not end: ",
      writing ? "nothing was written for " : "no checkpoint was begun for ",
      absl::FormatDuration(still), "; waited for ",
      job_->director->WaitingFor()));
}

void Patience::JudgeStart(absl::Time now) {
  const absl::Duration start = job_->timeouts.Start();
  const bool has_trained = job_->progress.training_begun().has_value();
  const bool later = job_->generation.value() > 1;
  // Workers cannot give first values before the shards have read theirs.
  const absl::Time read_until = restore_->read_until();
  if (job_->state.phase() == proto::STARTING && (later || has_trained)) {
    const absl::Duration limit = std::max(start, job_->timeouts.Recovery());
    if (now - std::max(
                  {restore_->generation_begun(), read_until, missing_until_}) >
        limit) {
      job_->director->FailUnlessFinishing(absl::StrCat(
          "the job did not recover within ", absl::FormatDuration(limit),
          ": waited for ", job_->director->WaitingFor()));
    }
    return;
  }
  const bool was_restored = job_->created && restore_->needs_disk();
  const absl::Time since =
      later || was_restored
          ? std::max(job_->progress.moved_at(), missing_until_)
          : std::max(job_->begun, read_until);
  if (now - since <= start) return;
  job_->director->FailUnlessFinishing(
      absl::StrCat("the job did not start within ", absl::FormatDuration(start),
                   ": waited for ", job_->director->WaitingFor()));
}

void Patience::JudgeStep(absl::Time now) {
  const absl::Duration step = job_->timeouts.Step();
  if (now - std::max({job_->progress.moved_at(),
                      *job_->progress.training_begun(), missing_until_}) <=
      step) {
    return;
  }
  const std::string passed = absl::FormatDuration(step);
  const std::string what =
      job_->stopping() ? absl::StrCat("the job did not stop within ", passed)
      : job_->declared.asynchronous()
          ? absl::StrCat("no push came through for ", passed)
          : absl::StrCat("step ", job_->step.number().value(), " was open for ",
                         passed);
  job_->director->FailUnlessFinishing(
      absl::StrCat(what, ": waited for ", job_->director->WaitingFor()));
}

}  // namespace holdfast
