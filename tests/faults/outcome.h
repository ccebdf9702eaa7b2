#ifndef HOLDFAST_TESTS_FAULTS_OUTCOME_H_
#define HOLDFAST_TESTS_FAULTS_OUTCOME_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace holdfast {

// What a finished job has left in its checkpoint directory, which no process
// can have kept to itself.

// The digest (common/tensor/digest.h) of the variables of the last checkpoint,
// which has to be the job's end, whole, and of `steps` steps; and that of
// `result_file`, where the chief has lived to write it, has to be the same.
// Where there are embedding tables, what is returned is a digest of both the
// variables and all rows and candidates, with all that is stored of them.
// Errors: DATA_LOSS with what is wrong.
absl::StatusOr<std::string> DigestAtEnd(const std::string& checkpoint_dir,
                                        const std::string& result_file,
                                        uint64_t steps);

// The digest of the values of a checkpoint, by its folder.
// Errors: those of CheckpointReader.
absl::StatusOr<std::string> DigestOfCheckpoint(const std::string& folder);

// Tests that a job of OnesModel has counted each of `pushes` pushes, and each
// of `positions` positions, once. Errors: DATA_LOSS with the elements that are
// wrong.
absl::Status CheckOnes(const std::string& checkpoint_dir, uint64_t pushes,
                       uint64_t positions);

// Tests that a synchronous one, with pushes of equal weight in each step, has
// counted each of `steps` steps once.
// Errors: as CheckOnes.
absl::Status CheckSteps(const std::string& checkpoint_dir, uint64_t steps);

// Tests that a job of rows_worker that counts (rows_job.h) has counted each of
// `pushes` pushes once, in the variable and in every row that it had.
// Errors: DATA_LOSS with the rows that are wrong.
absl::Status CheckRows(const std::string& checkpoint_dir, uint64_t pushes);

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_FAULTS_OUTCOME_H_
