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

// The job in examples/NAME, from this program's runfiles or the folder that it
// lies in (bundle.sh). Errors: those of LoadJobFile.
absl::StatusOr<proto::Job> LoadExample(const std::string& name);

// Images of 28 x 28 to train on: those of Fashion-MNIST's test set, which are
// fewer, from the folder that this program lies in or from Debian's package;
// where there are none, made ones.
absl::StatusOr<std::unique_ptr<Dataset>> ExampleImages(
    const Dataset::Options& options);

// The first values of the variables, as a ps makes them.
absl::StatusOr<std::vector<std::vector<float>>> FirstValues(
    const std::vector<proto::Variable>& variables, uint64_t seed);

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_GPU_EXAMPLE_JOB_H_
