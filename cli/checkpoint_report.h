// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_CHECKPOINT_REPORT_H_
#define HOLDFAST_CLI_CHECKPOINT_REPORT_H_

#include <optional>
#include <ostream>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/checkpoint/directory.h"
#include "proto/checkpoint.pb.h"

namespace holdfast {

// Reports on a checkpoint directory, for people. Nothing in it is changed, and
// no lock is taken: a job may be using it.
//
// Errors are those of CheckpointDirectory and CheckpointReader.

// Returns the journal of the directory. Errors: NOT_FOUND if no job has saved
// anything; DATA_LOSS.
absl::StatusOr<proto::Journal> JournalOf(const CheckpointDirectory& directory);

// Writes one line for each checkpoint, and what a restart would do. Errors:
// DATA_LOSS for a damaged journal, after the lines are written.
absl::Status ListCheckpoints(const CheckpointDirectory& directory,
                             std::ostream& out);

// Writes what a checkpoint holds, and the digest of its variables
// (common/tensor/digest.h).
absl::Status InspectCheckpoint(const CheckpointDirectory& directory,
                               const proto::CheckpointName& name,
                               std::ostream& out);

// Reads every block of the checkpoint `name`, and writes what it finds. Without
// a name, reads all complete checkpoints, and all that the journal names, which
// must be complete. Errors: DATA_LOSS if something is damaged; the lines
// written say what.
absl::Status VerifyCheckpoints(const CheckpointDirectory& directory,
                               const std::optional<proto::CheckpointName>& name,
                               std::ostream& out);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_CHECKPOINT_REPORT_H_
