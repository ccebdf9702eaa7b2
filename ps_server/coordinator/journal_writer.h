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

// Changes the journal, one change after the other.
//
// A change is made to the journal as it is on disk and then written; what
// follows from it is done when it is on disk. A write that fails is repeated
// until the disk's patience is over; then, or at once where somebody else
// writes this journal, the writer gives up.
//
// Thread-compatible. Part of an event machine: the archive's answers are
// events.
class JournalWriter {
 public:
  // `archive` may be null where nothing is ever changed. `patience`: how long
  // writes that fail are repeated. `give_up` is called with the reason; nothing
  // is under way then.
  JournalWriter(const Clock* clock, Archive* archive, Outbox* outbox,
                absl::AnyInvocable<absl::Duration()> patience,
                absl::AnyInvocable<void(const absl::Status& why)> give_up)
      : clock_(clock),
        archive_(archive),
        outbox_(outbox),
        patience_(std::move(patience)),
        give_up_(std::move(give_up)) {}

  // Begins with the journal that was found.
  void TakeUp(const proto::Journal& journal) { journal_ = journal; }

  // As it is on disk.
  const proto::Journal& journal() const { return journal_; }

  // `then` is called when the change is on disk.
  void Change(absl::AnyInvocable<void(proto::Journal* journal)> change,
              absl::AnyInvocable<void()> then);

  // Forgets the changes that are queued behind the one that is being written,
  // and does not repeat that.
  void Stop();

  // A change is being written, or tried again.
  bool busy() const { return busy_; }
  // No change is under way or queued.
  bool idle() const { return changes_.empty(); }
  // The change that is being written says that the job is finished; and when it
  // was first tried.
  bool finishing() const { return busy_ && in_writing_.finished(); }
  absl::Time begun() const { return begun_; }
  // What the disk last answered, while it has not done what it should.
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
  // When a write that failed is tried again.
  absl::Time due_ = absl::InfiniteFuture();
  absl::Time failing_since_ = absl::InfiniteFuture();
  std::string trouble_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_JOURNAL_WRITER_H_
