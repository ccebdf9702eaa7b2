// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_COORDINATOR_JOURNAL_WRITER_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_JOURNAL_WRITER_H_

#include <deque>
#include <string>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "proto/checkpoint.pb.h"
#include "ps_server/coordinator/archive.h"
#include "ps_server/coordinator/outbox.h"
#include "ps_server/reply/reply.h"

namespace holdfast {

// Makes changes to the journal, one after another.
//
// A change is applied to a copy of the journal on disk, and the result is
// written. Once it is on disk, the caller of the change is notified. A failed
// write is retried for as long as `patience` says. Then, or at once if another
// process writes this journal, the writer gives up.
//
// Thread-compatible. Part of an event machine: the archive's answers are
// events.
class JournalWriter {
 public:
  // `archive` may be null if nothing is ever changed. `patience` returns for
  // how long failed writes are retried. `give_up` is called, with the reason,
  // when the writer gives up; no write is in progress then.
  JournalWriter(const Clock* clock, Archive* archive, Outbox* outbox,
                absl::AnyInvocable<absl::Duration()> patience,
                absl::AnyInvocable<void(const absl::Status& why)> give_up)
      : clock_(clock),
        archive_(archive),
        outbox_(outbox),
        patience_(std::move(patience)),
        give_up_(std::move(give_up)) {}

  // Starts from the journal found on disk.
  void TakeUp(const proto::Journal& journal) { journal_ = journal; }

  // The journal as it is on disk.
  const proto::Journal& journal() const { return journal_; }

  // Queues a change: `change` is called with the journal to modify, and `then`
  // when the change is on disk.
  void Change(absl::AnyInvocable<void(proto::Journal* journal)> change,
              absl::AnyInvocable<void()> then);

  // Drops the changes queued behind the one that is being written, and does not
  // retry that one.
  void Stop();

  // Whether a change is being written or retried.
  bool busy() const { return busy_; }
  // Whether no change is in progress or queued.
  bool idle() const { return changes_.empty(); }
  // Whether a journal is being written that says that the job is finished.
  // begun(): when its first attempt was made.
  bool finishing() const { return busy_ && in_writing_.finished(); }
  absl::Time begun() const { return begun_; }
  // The error that the disk last returned, while a write is failing.
  const std::string& trouble() const { return trouble_; }

  void Tick();

 private:
  struct Pending {
    absl::AnyInvocable<void(proto::Journal* journal)> change;
    absl::AnyInvocable<void()> then;
  };

  void Write();
  void OnWritten(const absl::Status& status);

  const Clock* const clock_;
  Archive* const archive_;
  Outbox* const outbox_;
  absl::AnyInvocable<absl::Duration()> patience_;
  absl::AnyInvocable<void(const absl::Status& why)> give_up_;

  proto::Journal journal_;
  proto::Journal in_writing_;
  std::deque<Pending> changes_;
  bool busy_ = false;
  bool stopped_ = false;
  absl::Time begun_ = absl::InfinitePast();
  // When a failed write is retried.
  absl::Time due_ = absl::InfiniteFuture();
  absl::Time failing_since_ = absl::InfiniteFuture();
  std::string trouble_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_JOURNAL_WRITER_H_
