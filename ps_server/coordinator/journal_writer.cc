// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/journal_writer.h"

#include <algorithm>
#include <utility>

#include "glog/logging.h"

namespace holdfast {

void JournalWriter::Change(absl::AnyInvocable<void(proto::Journal*)> change,
                           absl::AnyInvocable<void()> then) {
  changes_.push_back({std::move(change), std::move(then)});
  if (!busy_) Write();
}

void JournalWriter::Write() {
  busy_ = true;
  if (failing_since_ == absl::InfiniteFuture()) begun_ = clock_->Now();
  due_ = absl::InfiniteFuture();
  in_writing_ = journal_;
  changes_.front().change(&in_writing_);
  outbox_->Send([this, journal = in_writing_] {
    archive_->WriteJournal(
        journal, outbox_->AsEvent<Done>([this](absl::StatusOr<Done> done) {
          OnWritten(done.status());
        }));
  });
}

void JournalWriter::OnWritten(const absl::Status& status) {
  if (!status.ok()) {
    if (stopped_) {
      changes_.clear();
      busy_ = false;
      return;
    }
    trouble_ = std::string(status.message());
    LOG(ERROR) << "the journal cannot be written: " << status;
    const absl::Time now = clock_->Now();
    failing_since_ = std::min(failing_since_, now);
    if (absl::IsAborted(status) || now - failing_since_ >= patience_()) {
      changes_.clear();
      busy_ = false;
      return give_up_(status);
    }
    due_ = now + kDiskRetryAfter;
    return;
  }
  failing_since_ = absl::InfiniteFuture();
  trouble_.clear();
  journal_ = in_writing_;
  Pending done = std::move(changes_.front());
  changes_.pop_front();
  busy_ = false;
  done.then();
  if (!busy_ && !changes_.empty()) Write();
}

void JournalWriter::Stop() {
  stopped_ = true;
  while (changes_.size() > (busy_ ? 1 : 0)) changes_.pop_back();
}

void JournalWriter::Tick() {
  if (due_ <= clock_->Now()) Write();
}

}  // namespace holdfast
