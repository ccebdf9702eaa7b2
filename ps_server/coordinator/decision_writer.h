// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_COORDINATOR_DECISION_WRITER_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_DECISION_WRITER_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "proto/checkpoint.pb.h"
#include "ps_server/coordinator/job.h"

namespace holdfast {

// Keeps in the journal what operators, workers and evaluations have decided:
// changes of the learning rate, the early end of the job, results on which
// decisions depend, and the best checkpoints. The caller that brought a change
// is answered once the change is on disk.
//
//  1. A checkpoint that has become one of the best is linked into their folder.
//  2. The journal is written.
//  3. Checkpoints in that folder that are no longer among the best are removed.
//
// So every best checkpoint that the journal names is in the folder.
//
// Once the job is done, failed writes of the journal are not retried. The
// caller whose change was to be written is answered with UNAVAILABLE, and must
// send it again.
//
// Thread-compatible. Part of an event machine: the archive's answers are
// events.
class DecisionWriter {
 public:
  // Called once.
  using Then = absl::AnyInvocable<void(const absl::Status& status)>;

  explicit DecisionWriter(Job* job) : job_(job) {}

  // Called when a decision has changed. Calls `then`, which may be empty, when
  // the change is on disk, or at once if there is no checkpoint directory; with
  // an error if the job ends first.
  void OnChanged(Then then = {});
  // Whether all changes are on disk.
  bool saved() const { return saved_ == changed_; }

  // Begins the next link or write that is due. Called in each event.
  void Advance();
  // Called when the journal has dropped the changes that it had not begun to
  // write.
  void OnJournalStopped();
  // Called when the job has ended: nothing more is written, and waiting callers
  // are answered with `why`.
  void OnEnded(const absl::Status& why);

 private:
  struct Waiting {
    uint64_t change;
    Then then;
  };

  void Link(const proto::CheckpointName& name);
  void Write(const std::vector<proto::CheckpointName>& best);
  void GiveUp();
  void Answer(uint64_t through, const absl::Status& status);

  Job* const job_;
  // Changes are numbered from 1. The last change that was made, and the last
  // one that is on disk.
  uint64_t changed_ = 0;
  uint64_t saved_ = 0;
  // The last change that could not be written after the job was done.
  uint64_t given_up_ = 0;
  bool linking_ = false;
  bool writing_ = false;
  // Checkpoints that are linked, but not yet in the journal.
  std::vector<proto::CheckpointName> linked_;
  std::deque<Waiting> waiting_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_DECISION_WRITER_H_
