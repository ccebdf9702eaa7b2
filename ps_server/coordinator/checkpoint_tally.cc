// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/checkpoint_tally.h"

namespace holdfast {

void CheckpointTally::OnWritten(const proto::Manifest& manifest,
                                absl::Time now) {
  ++written_;
  last_ = now - begun_;
  last_bytes_ = 0;
  for (const proto::DataFile& file : manifest.files()) {
    last_bytes_ += file.size();
  }
  written_at_ = now;
}

void CheckpointTally::AddTo(absl::Time now,
                            proto::CheckpointCounts* counts) const {
  counts->set_written(written_);
  counts->set_failed(failed_);
  if (!written_at_.has_value()) return;
  counts->set_last_seconds(absl::ToDoubleSeconds(last_));
  counts->set_last_bytes(last_bytes_);
  counts->set_age_seconds(absl::ToDoubleSeconds(now - *written_at_));
}

}  // namespace holdfast
