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

// Keeps in the journal what operators and evaluations have decided: changes of
// the learning rate, results that something follows from, and the best
// checkpoints. Whoever told one is answered when it is on disk.
//
//  1. A checkpoint that is among the best, and was not, is linked to their
//     folder.
//  2. The journal is written.
//  3. What is in that folder, and is not among the best any more, is removed.
//
// So the journal names no best checkpoint that is not there.
//
// Once the job is done the journal repeats no write that fails. Whoever told
// what was to be written is answered with UNAVAILABLE, and is to tell it again.
//
// Thread-compatible. Part of an event machine: the archive's answers are
// events.
class DecisionWriter {
 public:
  // Told once.
  using Then = absl::AnyInvocable<void(const absl::Status& status)>;

  explicit DecisionWriter(Job* job) : job_(job) {}

  // Something has changed. `then`: it is on disk, at once where there is none;
  // or it will not be, for the job has ended. May be empty.
  void OnChanged(Then then = {});
  // All that was told is on disk.
  bool saved() const { return saved_ == changed_; }

  // In each event: what has become due.
  void Advance();
  // The journal forgets what it has not begun to write.
  void OnJournalStopped();
  // The job ends, and nothing more is written.
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
  // Changes are numbered from 1.
  uint64_t changed_ = 0;
  uint64_t saved_ = 0;
  // Of a job that is done: the last that could not be written.
  uint64_t given_up_ = 0;
  bool linking_ = false;
  bool writing_ = false;
  // Linked, and not in the journal yet.
  std::vector<proto::CheckpointName> linked_;
  std::deque<Waiting> waiting_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_DECISION_WRITER_H_
