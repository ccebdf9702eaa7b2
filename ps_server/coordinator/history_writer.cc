// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/history_writer.h"

#include <utility>

#include "glog/logging.h"

namespace holdfast {

HistoryWriter::HistoryWriter(const Clock* clock, Archive* archive,
                             Outbox* outbox,
                             absl::AnyInvocable<uint64_t()> changes,
                             absl::AnyInvocable<proto::History()> make)
    : clock_(clock),
      archive_(archive),
      outbox_(outbox),
      changes_(std::move(changes)),
      make_(std::move(make)),
      written_at_(clock->Now()) {}

void HistoryWriter::Write() {
  if (archive_ == nullptr) return;
  const uint64_t changes = changes_();
  if (changes == written_) return;
  written_ = changes;
  written_at_ = clock_->Now();
  ++under_way_;
  outbox_->Send([this, history = make_()]() mutable {
    archive_->WriteHistory(
        std::move(history),
        outbox_->AsEvent<Done>(
            [this](absl::StatusOr<Done> done) { OnWritten(done.status()); }));
  });
}

void HistoryWriter::Tick() {
  // A slow disk gets no further work.
  if (under_way_ > 0 || clock_->Now() - written_at_ < kEvery) return;
  Write();
}

void HistoryWriter::OnWritten(const absl::Status& status) {
  --under_way_;
  if (status.ok()) {
    LOG_IF(INFO, failing_) << "the history is on disk again";
    failing_ = false;
    return;
  }
  // Retry with the next write, whether or not more has changed by then.
  written_ = 0;
  LOG_IF(WARNING, !failing_)
      << "the history cannot be written; the job continues without it: "
      << status;
  failing_ = true;
}

}  // namespace holdfast
