#ifndef HOLDFAST_CLI_CHECKPOINT_REPORT_H_
#define HOLDFAST_CLI_CHECKPOINT_REPORT_H_

#include <optional>
#include <ostream>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/checkpoint/directory.h"
#include "proto/checkpoint.pb.h"

namespace holdfast {

// What people are told of a checkpoint directory. Nothing is changed in it, and
// no lock is taken: a job may be at work there.
//
// Errors are those of CheckpointDirectory and CheckpointReader.

// Errors: NOT_FOUND where no job has saved anything; DATA_LOSS.
absl::StatusOr<proto::Journal> JournalOf(const CheckpointDirectory& directory);

// One line for each checkpoint, and what a restart would do.
// Errors: DATA_LOSS for a damaged journal, after the lines.
absl::Status ListCheckpoints(const CheckpointDirectory& directory,
                             std::ostream& out);

// What a checkpoint holds, and the digest of its variables
// (common/tensor/digest.h).
absl::Status InspectCheckpoint(const CheckpointDirectory& directory,
                               const proto::CheckpointName& name,
                               std::ostream& out);

// Reads every block: of the one that is named, or else of all that are complete
// and of those that the journal names, which have to be.
// Errors: DATA_LOSS when something is damaged; the lines say what.
absl::Status VerifyCheckpoints(const CheckpointDirectory& directory,
                               const std::optional<proto::CheckpointName>& name,
                               std::ostream& out);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_CHECKPOINT_REPORT_H_
