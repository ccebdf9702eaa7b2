// SPDX-License-Identifier: Apache-2.0
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

// Keeps the history on disk. Write is called at moments that matter; besides,
// it is written when it has changed, at most once per kEvery.
//
// The job does not depend on it: a failed write is logged, and retried with the
// next write.
//
// Thread-compatible. Part of an event machine: the archive's answers are
// events.
class HistoryWriter {
 public:
  // The time between writes. A crash may lose this much of the history that
  // users were shown.
  static constexpr absl::Duration kEvery = absl::Seconds(10);

  // `archive` is null if nothing is kept. `make` returns the history to write.
  // `changes` returns a count that rises whenever the history must be written
  // again.
  HistoryWriter(const Clock* clock, Archive* archive, Outbox* outbox,
                absl::AnyInvocable<uint64_t()> changes,
                absl::AnyInvocable<proto::History()> make);

  // Writes the history, if it has changed since the last write.
  void Write();
  // Like Write, but only when it is time.
  void Tick();

 private:
  void OnWritten(const absl::Status& status);

  const Clock* const clock_;
  Archive* const archive_;
  Outbox* const outbox_;
  absl::AnyInvocable<uint64_t()> changes_;
  absl::AnyInvocable<proto::History()> make_;

  // The value of changes_() at the last write, and when that was.
  uint64_t written_ = 0;
  absl::Time written_at_;
  // The number of writes in flight.
  int under_way_ = 0;
  bool failing_ = false;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_HISTORY_WRITER_H_
