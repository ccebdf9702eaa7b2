// SPDX-License-Identifier: Apache-2.0

// How the job ends: DONE, FAILED, or stopped by an operator
// (docs/protocol/recovery.md, C5 and E1 to E4).
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/printable_text.h"
#include "glog/logging.h"
#include "ps_server/coordinator/coordinator.h"
#include "ps_server/protocol/request.h"

namespace holdfast {
namespace {

// The limit on the reason of a failure, which all tasks are told; a task's last
// error may be long.
constexpr size_t kMaxReasonBytes = 4000;

}  // namespace

// ---- DONE ----

// [C5]
void Coordinator::Conclude() {
  if (FailIfDiverged()) return;
  if (job_.archive == nullptr) return OnFinished();
  save_.Conclude();
}

// Nothing is known of the job but what the journal says.
void Coordinator::GoToLastCheckpoint() {
  const uint64_t step = job_.journal.journal().checkpoints().rbegin()->step();
  job_.progress.SetCommitted(GlobalStep(step));
  save_.GoBack(step);
}

void Coordinator::OnFinished() {
  job_.state.set_phase(proto::DONE);
  if (job_.created) {
    job_.chronicle.Close();
    job_.Tell(proto::Event::DONE,
              absl::StrCat("the job is done: ", job_.global_step(), " steps"));
  } else {
    GoToLastCheckpoint();
  }
  const auto& saved = job_.journal.journal().checkpoints();
  if (!saved.empty() && job_.options.checkpoint_folder) {
    job_.state.set_last_checkpoint(
        job_.options.checkpoint_folder(*saved.rbegin()));
  }
  job_.journal.Stop();
  decisions_.OnJournalStopped();
  if (job_.created) job_.chronicle.Write();
  end_.OnDone();
  AnswerOfEnd();
}

// ---- STOPPED ----

void Coordinator::Stop(const proto::StopRequest& request,
                       Reply<proto::StopResponse> reply) {
  const Outbox::Event event(&job_.outbox);
  if (request.finish()) return Finish(request, std::move(reply));
  if (IsWorker(ToTaskId(request.sender().task()))) {
    return job_.outbox.Answer(
        std::move(reply),
        absl::PermissionDeniedError(absl::StrCat(
            ToTaskId(request.sender().task()).ToString(),
            " may end the job (finish), but only operators may stop it")));
  }
  if (job_.archive == nullptr && !request.without_checkpoint() &&
      !job_.ended()) {
    return job_.outbox.Answer(
        std::move(reply),
        absl::FailedPreconditionError(
            "it was started without a checkpoint directory (--checkpoint_dir): "
            "the training so far would be lost. `holdfast stop "
            "--without_checkpoint` stops the job anyway"));
  }
  const bool meant = !request.has_generation() ||
                     request.generation() >= job_.generation.value();
  if (!stop_.asked() && !meant) return stop_.Tell(std::move(reply));
  if (!stop_.asked() && !job_.ended()) {
    job_.Tell(
        proto::Event::STOPPING,
        absl::StrCat(
            "an operator has asked the job to stop",
            request.without_checkpoint() ? ", without a checkpoint" : ""));
  }
  stop_.Ask(request, std::move(reply));
}

// ---- DONE early, because a task has asked for it ----

void Coordinator::Finish(const proto::StopRequest& request,
                         Reply<proto::StopResponse> reply) {
  const TaskId task = ToTaskId(request.sender().task());
  if (IsWorker(task)) {
    const auto session = job_.members.FindLife(request.sender());
    absl::Status status = session.status();
    if (job_.members.IsFenced(session, request.sender())) {
      status =
          absl::AbortedError(absl::StrCat(task.ToString(), " has been fenced"));
    }
    if (!status.ok()) return job_.outbox.Answer(std::move(reply), status);
  }
  // A job that stops or has ended, now or before this process started, does not
  // end early any more.
  if (job_.ended() || job_.finished_before || stop_.asked()) {
    return stop_.Await(request, std::move(reply));
  }
  if (!job_.declared.has_value()) {
    return job_.outbox.Answer(
        std::move(reply),
        absl::FailedPreconditionError(absl::StrCat(
            "there is no job to end yet: waiting for ", WaitingFor())));
  }
  const bool repeated = job_.finish.has_value();
  if (!repeated) {
    job_.finish.emplace();
    job_.finish->set_by(IsWorker(task) ? NameOf(task) : "an operator");
    job_.finish->set_step(job_.global_step());
  }
  if (repeated && decisions_.saved()) {
    return stop_.Await(request, std::move(reply));
  }
  decisions_.OnChanged([this, request, reply = std::move(reply)](
                           const absl::Status& saved) mutable {
    if (!saved.ok()) return job_.outbox.Answer(std::move(reply), saved);
    stop_.Await(request, std::move(reply));
  });
}

// ---- STOPPED ----

// [E2]
void Coordinator::AdvanceStop() {
  if (job_.state.phase() == proto::STARTING && !restore_.beginning()) {
    // The job has no state except what is on disk.
    return EndStopped();
  }
  if (job_.training() && !job_.AllMade()) {
    job_.state.set_phase(proto::STOPPING);
    job_.members.AnswerRenewals();
    if (!stop_.without_checkpoint()) save_.Conclude();
  }
  if (!job_.stopping()) return;
  if (job_.step.open() && !commit_.IsDue()) job_.step.Reset();
  // A checkpoint that the journal may name already is not abandoned.
  if (stop_.without_checkpoint() && !job_.AllMade() && job_.journal.idle()) {
    save_.Abort();
  }
}

// [E3]
void Coordinator::OnSavedToStop(const proto::Position& position) {
  // The checkpoint includes pushes that shards had applied but that were not
  // booked.
  if (job_.declared.asynchronous()) job_.progress.GoBack(position);
  EndStopped();
}

// [E4]
void Coordinator::EndStopped() {
  const std::string what = stop_.Describe();
  job_.state.set_phase(proto::STOPPED);
  job_.state.set_reason(what);
  if (job_.created) job_.chronicle.Close();
  job_.Tell(proto::Event::STOPPED, what);
  for (auto& parked : job_.step.parked()->TakeAll()) {
    job_.outbox.Answer(std::move(parked.reply),
                       ContributeAnswer(proto::VERDICT_UNSPECIFIED));
  }
  restore_.Abort();
  save_.Abort();
  // The job is not finished, whatever was about to be written.
  job_.journal.Stop();
  job_.chronicle.Write();
  end_.OnStopped();
  job_.members.RetryRegisters(std::nullopt);
  AnswerOfEnd();
}

// ---- FAILED ----

void Coordinator::Fail(const std::string& reason) {
  const Outbox::Event event(&job_.outbox);
  FailUnlessFinishing(reason);
}

void Coordinator::FailUnlessFinishing(const std::string& reason) {
  if (job_.ended()) return;
  // [C5] The next life of the coordinator takes the job's state from disk.
  if (job_.journal.finishing() &&
      job_.clock->Now() - job_.journal.begun() <= job_.timeouts.Disk()) {
    LOG_EVERY_N(WARNING, 100)
        << "the job is about to be DONE, and so does not fail: " << reason;
    return;
  }
  FailNow(reason);
}

void Coordinator::FailNow(const std::string& reason) {
  if (job_.ended()) return;
  if (job_.created) job_.chronicle.Close();
  job_.state.set_phase(proto::FAILED);
  // A worker's last error may have any lines.
  job_.state.set_reason(Shorten(PrintableText(reason), kMaxReasonBytes));
  job_.Tell(proto::Event::FAILED, absl::StrCat("the job has failed: ", reason));
  auto contributions = job_.step.parked()->TakeAll();
  for (const auto& parked : contributions) {
    if (!job_.verdicts.Find(parked.key).has_value()) {
      Refuse(parked.key, proto::ABORTED);
    }
  }
  for (auto& parked : contributions) {
    job_.outbox.Answer(std::move(parked.reply),
                       ContributeAnswer(*job_.verdicts.Find(parked.key)));
  }
  restore_.Abort();
  save_.Abort();
  // Queued changes follow from a state that is gone.
  job_.journal.Stop();
  job_.chronicle.Write();
  job_.members.RetryRegisters(std::nullopt);
  AnswerOfEnd();
}

bool Coordinator::FailIfDiverged() {
  if (!job_.at_work() || !job_.learning.diverged()) return false;
  FailNow(job_.learning.DescribeDivergence(job_.progress.committed()));
  return true;
}

// ---- All ----

void Coordinator::AnswerOfEnd() {
  AnswerTickets(job_.tickets.parked()->TakeAll());
  AnswerPlacements();
  job_.members.AnswerRenewals();
  save_.AnswerAll();
  stop_.AnswerAll();
  if (job_.ended_early()) {
    decisions_.OnEnded(absl::AbortedError(job_.state.reason()));
  }
}

}  // namespace holdfast
