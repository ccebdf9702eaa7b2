#ifndef HOLDFAST_PS_SERVER_COORDINATOR_HISTORY_WRITER_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_HISTORY_WRITER_H_

#include <cstdint>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "proto/checkpoint.pb.h"
#include "ps_server/coordinator/archive.h"
#include "ps_server/coordinator/outbox.h"

namespace holdfast {

// Keeps the history on disk: at moments that matter, and otherwise at most once
// in kEvery, when it has changed.
//
// The job does not depend on it: what cannot be written is told in the log, and
// tried again with the next write.
//
// Thread-compatible. Part of an event machine: the archive's answers are
// events.
class HistoryWriter {
 public:
  // A crash loses what people were shown for as long.
  static constexpr absl::Duration kEvery = absl::Seconds(10);

  // `archive`: null where nothing is kept. `changes` rises whenever what `make`
  // returns is to be written again.
  HistoryWriter(const Clock* clock, Archive* archive, Outbox* outbox,
                absl::AnyInvocable<uint64_t()> changes,
                absl::AnyInvocable<proto::History()> make);

  // Writes what has changed, if anything has.
  void Write();
  // The same when it is time.
  void Tick();

 private:
  void OnWritten(const absl::Status& status);

  const Clock* const clock_;
  Archive* const archive_;
  Outbox* const outbox_;
  absl::AnyInvocable<uint64_t()> changes_;
  absl::AnyInvocable<proto::History()> make_;

  // By changes_, what was last given to the disk, and when.
  uint64_t written_ = 0;
  absl::Time written_at_;
  // Writes without an answer.
  int under_way_ = 0;
  bool failing_ = false;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_HISTORY_WRITER_H_
