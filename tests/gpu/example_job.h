// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_TESTS_GPU_EXAMPLE_JOB_H_
#define HOLDFAST_TESTS_GPU_EXAMPLE_JOB_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/data/dataset.h"
#include "proto/job.pb.h"
#include "proto/training.pb.h"

namespace holdfast {

// Loads the job in examples/NAME, from this program's runfiles or from the
// program's folder (bundle.sh).
// Errors: those of LoadJobFile.
absl::StatusOr<proto::Job> LoadExample(const std::string& name);

// Images of 28 x 28 to train on: Fashion-MNIST's test set, which is smaller
// than the training set, from the program's folder or from Debian's package; if
// there is none, generated images.
absl::StatusOr<std::unique_ptr<Dataset>> ExampleImages(
    const Dataset::Options& options);

// The first values of the variables, computed as a ps does.
absl::StatusOr<std::vector<std::vector<float>>> FirstValues(
    const std::vector<proto::Variable>& variables, uint64_t seed);

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_GPU_EXAMPLE_JOB_H_
