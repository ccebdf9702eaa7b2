// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_COORDINATOR_CHECKPOINT_TALLY_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_CHECKPOINT_TALLY_H_

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "proto/checkpoint.pb.h"
#include "proto/coordinator.pb.h"

namespace holdfast {

// Counts the checkpoints of one life of the coordinator, and measures the
// duration and size of the newest.
//
// Thread-compatible.
class CheckpointTally {
 public:
  void OnBegun(absl::Time now) { begun_ = now; }
  // Called when the manifest, and with it the checkpoint, is on disk.
  void OnWritten(const proto::Manifest& manifest, absl::Time now);
  void OnFailed() { ++failed_; }

  void AddTo(absl::Time now, proto::CheckpointCounts* counts) const;

 private:
  uint64_t written_ = 0;
  uint64_t failed_ = 0;
  absl::Time begun_;
  absl::Duration last_;
  uint64_t last_bytes_ = 0;
  std::optional<absl::Time> written_at_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_CHECKPOINT_TALLY_H_
