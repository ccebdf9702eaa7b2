// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_TESTS_FAULTS_OUTCOME_H_
#define HOLDFAST_TESTS_FAULTS_OUTCOME_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace holdfast {

// Checks of what a finished job has left in its checkpoint directory, which
// shows what really became of it, whatever its processes report.

// Returns the digest (common/tensor/digest.h) of the variables of the last
// checkpoint. This checkpoint must be complete, the end of the job, and at step
// `steps`. If the chief has lived to write `result_file`, its digest must be
// the same. For a job with embedding tables, the returned digest covers the
// variables and everything that is stored of all rows and candidates.
// Errors: DATA_LOSS with the reason.
absl::StatusOr<std::string> DigestAtEnd(const std::string& checkpoint_dir,
                                        const std::string& result_file,
                                        uint64_t steps);

// Returns the digest of the values of the checkpoint in `folder`.
// Errors: those of CheckpointReader.
absl::StatusOr<std::string> DigestOfCheckpoint(const std::string& folder);

// Checks that a job of OnesModel has counted each of `pushes` pushes, and each
// of `positions` positions, once. Errors: DATA_LOSS with the elements that are
// wrong.
absl::Status CheckOnes(const std::string& checkpoint_dir, uint64_t pushes,
                       uint64_t positions);

// Checks that a synchronous job of OnesModel, with pushes of equal weight in
// each step, has counted each of `steps` steps once.
// Errors: those of CheckOnes.
absl::Status CheckSteps(const std::string& checkpoint_dir, uint64_t steps);

// Checks that a job of rows_worker that counts (rows_job.h) has counted each of
// `pushes` pushes once, in the variable and in every row that the push had.
// Errors: DATA_LOSS with the rows that are wrong.
absl::Status CheckRows(const std::string& checkpoint_dir, uint64_t pushes);

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_FAULTS_OUTCOME_H_
