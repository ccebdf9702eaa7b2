// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_COORDINATOR_JOB_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_JOB_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/job/ids.h"
#include "common/job/job_phase.h"
#include "common/job/task_id.h"
#include "proto/checkpoint.pb.h"
#include "proto/coordinator.pb.h"
#include "ps_server/coordinator/archive.h"
#include "ps_server/coordinator/broadcast.h"
#include "ps_server/coordinator/chronicle.h"
#include "ps_server/coordinator/coordinator_options.h"
#include "ps_server/coordinator/evaluations.h"
#include "ps_server/coordinator/job_declaration.h"
#include "ps_server/coordinator/journal_writer.h"
#include "ps_server/coordinator/learning_state.h"
#include "ps_server/coordinator/members.h"
#include "ps_server/coordinator/open_step.h"
#include "ps_server/coordinator/operation.h"
#include "ps_server/coordinator/outbox.h"
#include "ps_server/coordinator/progress.h"
#include "ps_server/coordinator/rate_changes.h"
#include "ps_server/coordinator/step_timer.h"
#include "ps_server/coordinator/ticket_book.h"
#include "ps_server/coordinator/timeouts.h"
#include "ps_server/coordinator/verdicts.h"
#include "ps_server/coordinator/worker_paces.h"

namespace holdfast {

// Receives notifications from operations. The coordinator implements this
// interface, and decides what each notification means for the other parts.
class Director {
 public:
  virtual ~Director() = default;
  // Ends the job as FAILED, unless the journal that says that the job is
  // finished is being written [C5].
  virtual void FailUnlessFinishing(const std::string& reason) = 0;
  // Ends the job as FAILED, unconditionally.
  virtual void FailNow(const std::string& reason) = 0;
  // What the whole job waits for, in words for users.
  virtual std::string WaitingFor() const = 0;

  // [G1] Called when the generation is over, because its state is lost.
  virtual void OnGenerationOver() = 0;
  // [G3] Called when messages may name the next generation, which resumes from
  // `position`.
  virtual void OnGenerationBegun(const proto::Position& position) = 0;
  // [G4] Called when a shard lacks first values that workers have to give.
  virtual void OnValuesWanted() = 0;
  // [G5] Called when every shard has its state. `from` is the manifest of the
  // checkpoint that was restored; empty if the variables have their first
  // values.
  virtual void OnRestored(const proto::Manifest& from) = 0;
  // Called when the open step is closed with the offers that it has, and the
  // next step is open.
  virtual void OnStepClosed() = 0;
  // [C5] Called when the journal on disk says that the job is finished.
  virtual void OnFinished() = 0;
  // [E3] Called when the checkpoint with which the job stops is on disk. Its
  // position is `position`.
  virtual void OnSavedToStop(const proto::Position& position) = 0;
};

// One job: the parts of the coordinator, each of which owns its state, and the
// few things that belong to the job as a whole. Operations act on it.
struct Job {
  // `settle` is passed to the Outbox.
  Job(const CoordinatorOptions& options, const Clock* clock, ShardLinks* links,
      Archive* archive, absl::AnyInvocable<void()> settle,
      Members::Owner* members_owner, Director* director)
      : options(options),
        clock(clock),
        links(links),
        archive(archive),
        director(director),
        begun(clock->Now()),
        outbox(std::move(settle)),
        speech{options.num_ps,
               links,
               &outbox,
               clock,
               options.resend_after,
               [this](uint32_t ps) { return members.shard_nonce(ps); }},
        declared(options.num_ps, options.num_workers, archive != nullptr),
        timeouts(this->options, &declared),
        members(this->options, archive != nullptr, clock, &outbox, &declared,
                members_owner),
        journal(
            clock, archive, &outbox, [this] { return timeouts.Recovery(); },
            [this](const absl::Status& why) {
              this->director->FailNow(absl::StrCat(
                  "/job:ps/task:0 cannot write its journal: ", why.message()));
            }),
        tickets(&declared),
        step(&declared),
        evaluations(&declared),
        chronicle(this->options.date, clock, archive, &outbox, &journal,
                  &progress, [this] {
                    return Chronicle::Moment{generation, global_step()};
                  }) {
    state.set_phase(proto::STARTING);
  }

  // Whether the journal found at the start has a declaration: the job resumes
  // from that journal, or had finished before.
  bool begun_with_journal() const {
    return archive != nullptr && options.journal.has_declaration();
  }
  bool ended() const { return IsEnd(state.phase()); }
  bool training() const { return state.phase() == proto::TRAINING; }
  // [E2] Whether the job is stopping: no step opens, no ticket is handed out,
  // and the job waits only for shards.
  bool stopping() const { return state.phase() == proto::STOPPING; }
  // Whether the job ended before all its steps were made.
  bool ended_early() const {
    return state.phase() == proto::FAILED || state.phase() == proto::STOPPED;
  }
  // Whether the shards have the variables, and may be told to change them.
  bool at_work() const { return training() || stopping(); }
  // The number of steps that the job makes: the declared number, unless it has
  // been decided that the job ends earlier. There must be a declaration.
  uint64_t total_steps() const {
    return std::min(declared->total_steps(),
                    early_end.value_or(declared->total_steps()));
  }
  // Whether the contents of all steps are decided, so that what is left to do,
  // the last Commit or checkpoint, needs no worker. A worker may see the last
  // version on every shard, and leave, before the coordinator has heard that
  // the shards hold it.
  bool AllStepsFixed() const {
    if (stopping()) return true;
    return created &&
           (declared.asynchronous() ? tickets.pool().all_spent()
                                    : step.number().value() >= total_steps());
  }
  // Whether every step is committed or, in an asynchronous job, every ticket is
  // spent.
  bool AllMade() const {
    return created && (declared.asynchronous()
                           ? tickets.pool().all_spent()
                           : progress.committed().value() >= total_steps());
  }
  // [L3] Whether the job waits because fewer workers than min_replicas are
  // live.
  bool TooFewWorkers() const {
    return declared.continues() &&
           members.num_live_workers() < declared->lost_workers().min_replicas();
  }

  // [L5] Makes the open step wait for the workers that are live now.
  void CountMembersOfStep() {
    const uint64_t changes = members.presence_changes();
    if (!declared.continues() || step.members_as_of() == changes) return;
    OpenStep::Members present;
    for (const TaskId& worker : members.live_workers()) {
      present.emplace(worker, members.ReplicaOf(worker));
    }
    step.SetMembers(std::move(present), changes);
  }
  void OpenStepAt(GlobalStep number) {
    step.Open(number);
    const absl::Time now = clock->Now();
    progress.OnMoved(now);
    step_timer.OnOpened(number, now);
    paces.OnStepOpened(number, now);
    CountMembersOfStep();
  }

  // The step that workers are told: it is ahead of the shards, because verdicts
  // are given before the shards have committed.
  uint64_t global_step() const {
    return step.open() ? step.number().value() : progress.committed().value();
  }
  // Reports an event to users.
  void Tell(proto::Event::Kind kind, const std::string& text,
            const std::optional<TaskId>& about = std::nullopt) {
    chronicle.Tell(kind, text, about);
  }

  // Returns the coordinator as the sender of a message to shards.
  proto::Sender Self() const {
    proto::Sender self;
    self.mutable_task()->set_job(kPsJob);
    self.set_generation(generation.value());
    return self;
  }
  // Handles a shard's answer with an error that no operation expects.
  Heard OnRefused(uint32_t ps, const absl::Status& status) {
    director->FailUnlessFinishing(absl::StrCat(
        "/job:ps/task:", ps, " refused to go on: ", status.ToString()));
    return Heard::kBroken;
  }
  // Handles the answer to a message that a shard only acknowledges.
  template <typename Response>
  Heard OnAcknowledged(uint32_t ps, const absl::StatusOr<Response>& response) {
    return response.ok() ? Heard::kDone : OnRefused(ps, response.status());
  }

  const CoordinatorOptions options;
  const Clock* const clock;
  ShardLinks* const links;
  // Null if there is no checkpoint directory.
  Archive* const archive;
  Director* const director;
  // When this coordinator's life began.
  const absl::Time begun;

  Outbox outbox;
  const ShardSpeech speech;
  // The operation that holds the shards (operation.h), or null if none does.
  Operation* running = nullptr;

  Generation generation = Generation(1);
  proto::JobState state;
  // Whether the journal found at the start says that the job is finished, while
  // it is not known yet whether the job continues with more steps [J3].
  bool finished_before = false;
  // [G5] Whether the variables of the generation exist on every shard.
  bool created = false;

  JobDeclaration declared;
  Timeouts timeouts;
  Members members;
  JournalWriter journal;
  TicketBook tickets;
  OpenStep step;
  Verdicts verdicts;
  LearningState learning;
  Progress progress;
  Evaluations evaluations;
  RateChanges rates;
  // Set when the job ends early: the number of steps that it makes, or of
  // tickets in an asynchronous job.
  std::optional<uint64_t> early_end;
  // The request to end the job early, if there is one (Coordinator.Stop with
  // `finish`). Kept in the journal; holds across generations.
  std::optional<proto::EarlyEnd> finish;

  // What users are shown; nothing else depends on it.
  Chronicle chronicle;
  StepTimer step_timer;
  WorkerPaces paces;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_JOB_H_
