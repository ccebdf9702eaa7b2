// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_COORDINATOR_CHRONICLE_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_CHRONICLE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/job/ids.h"
#include "common/job/task_id.h"
#include "proto/checkpoint.pb.h"
#include "proto/coordinator.pb.h"
#include "ps_server/coordinator/archive.h"
#include "ps_server/coordinator/events.h"
#include "ps_server/coordinator/history_writer.h"
#include "ps_server/coordinator/job_history.h"
#include "ps_server/coordinator/journal_writer.h"
#include "ps_server/coordinator/outbox.h"
#include "ps_server/coordinator/progress.h"
#include "ps_server/coordinator/recent_rates.h"

namespace holdfast {

// The events of a job, and its history of loss and rate, to be shown to users.
// Keeps both on disk, if there is a checkpoint directory. No decision of the
// job depends on them.
//
// Thread-compatible. Part of an event machine: the archive's answers are
// events.
class Chronicle {
 public:
  // The state of the job that goes with an event.
  struct Moment {
    Generation generation;
    // The step that workers are told: it is ahead of the shards, because
    // verdicts are given before the shards have committed.
    uint64_t step = 0;
  };

  // `date` may be empty, if the date is unknown. `archive` is null if nothing
  // is kept on disk. All pointers must stay valid for as long as the chronicle.
  Chronicle(std::function<absl::Time()> date, const Clock* clock,
            Archive* archive, Outbox* outbox, const JournalWriter* journal,
            Progress* progress, std::function<Moment()> now);

  // Continues from the history found on disk.
  void TakeUp(const proto::History& history);

  // Reports an event to users. `text` is a whole sentence without a full stop.
  void Tell(proto::Event::Kind kind, const std::string& text,
            const std::optional<TaskId>& about = std::nullopt);

  // Called when training begins, or resumes.
  void OnTraining();
  // Called when steps have been committed, or tickets spent. Adds a point to
  // the history if one is due.
  void OnProgress();
  // Called when a worker reports the result of an evaluation. Returns false if
  // the same result has been reported before.
  bool OnEvaluation(const proto::EvaluationResult& result);
  // Called when the job ends. Adds a point for its last steps, whether or not
  // one is due.
  void Close();
  // Called when a generation is over.
  void OnGenerationOver() { rates_.Reset(); }
  // Called when the job resumes from `step`. Forgets the points of later steps.
  void GoBack(uint64_t step) { history_.GoBack(step); }

  // Writes the history to disk if it has changed. Does nothing until the
  // journal on disk belongs to this job.
  void Write();
  // Called once a second: samples the rates, and writes the history when that
  // is due.
  void Look();

  const EventLog& events() const { return events_; }
  const JobHistory& history() const { return history_; }
  // Rates over the last seconds of training.
  RecentRates::Rates rates() const;

 private:
  void AddPoint();
  // Seconds since 1970; 0 if the date is unknown.
  double Date() const;
  RecentRates::Position Reached() const;
  proto::History Make() const;

  const std::function<absl::Time()> date_;
  const Clock* const clock_;
  const JournalWriter& journal_;
  Progress& progress_;
  const std::function<Moment()> now_;

  EventLog events_;
  JobHistory history_;
  RecentRates rates_;
  HistoryWriter writer_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_CHRONICLE_H_
