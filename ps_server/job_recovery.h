// SPDX-License-Identifier: Apache-2.0

// What ps 0 recovers from a job's checkpoint directory when it starts.
#ifndef HOLDFAST_PS_SERVER_JOB_RECOVERY_H_
#define HOLDFAST_PS_SERVER_JOB_RECOVERY_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/checkpoint/directory.h"
#include "common/checkpoint/file_system.h"
#include "proto/checkpoint.pb.h"

namespace holdfast {

// Locks the directory against other coordinators, and waits a few seconds for a
// predecessor that is shutting down. `task` is the name of the calling task,
// which appears in the log, and in the errors of other processes that find the
// directory locked.
// Errors: those of CheckpointDirectory::Lock.
absl::StatusOr<std::unique_ptr<FileLock>> AwaitLock(
    const CheckpointDirectory& directory, const std::string& task);

// Returns the journal or, if the directory is empty, a new one. `warm_start` is
// the folder of the checkpoint from which a new job takes its first values, or
// empty if there is none.
// Errors: FAILED_PRECONDITION when there are checkpoints but no journal; those
// of CheckpointReader::OpenFolder for `warm_start`, which is read only if
// `directory` is empty; those of CheckpointDirectory.
absl::StatusOr<proto::Journal> RecoverJournal(
    const CheckpointDirectory& directory, const std::string& warm_start);

// Returns the manifest in the folder `warm_start`, for a job that takes its
// first slots from this checkpoint; nullopt if `journal` has a checkpoint to
// resume from.
// Errors: those of CheckpointReader::OpenFolder.
absl::StatusOr<std::optional<proto::Manifest>> FindWarmSlots(
    const CheckpointDirectory& directory, const proto::Journal& journal,
    const std::string& warm_start);

// Returns the history that goes with `journal`. The history is only for people,
// so one that is lost, damaged or from another directory is replaced by an
// empty one, with a warning that names `task`.
proto::History RecoverHistory(const CheckpointDirectory& directory,
                              const proto::Journal& journal,
                              const std::string& task);

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_JOB_RECOVERY_H_
