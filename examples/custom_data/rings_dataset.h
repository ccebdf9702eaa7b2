// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_EXAMPLES_CUSTOM_DATA_RINGS_DATASET_H_
#define HOLDFAST_EXAMPLES_CUSTOM_DATA_RINGS_DATASET_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/data/dataset.h"
#include "worker/input/dataset_registry.h"

namespace holdfast_examples {

// Points of the plane on rings around the origin, one class per ring. Nothing
// is stored: example i is computed from i and the seed whenever it is read, so
// all workers and their threads agree on it without communicating.
//
// Options: `examples`, the number of examples, required; `rings`, the number of
// rings, 2 by default; `noise`, the maximum difference between a point's
// distance from the origin and the radius of its ring (1, 2, ...), 0.25 by
// default; `seed`, 0 by default.
class RingsDataset final : public holdfast::Dataset {
 public:
  // Errors: INVALID_ARGUMENT for an option that is unknown, missing, or out of
  // range.
  static absl::StatusOr<std::unique_ptr<holdfast::Dataset>> Create(
      const holdfast::DatasetContext& context);

  int64_t num_examples() const override { return options_.examples; }
  const holdfast::ExampleSpec& spec() const override { return spec_; }
  absl::Status Read(int64_t index,
                    const holdfast::ExampleMemory& to) const override;
  const std::string& digest() const override { return digest_; }

 private:
  struct Options {
    int64_t examples = 0;
    int64_t rings = 2;
    double noise = 0.25;
    uint64_t seed = 0;
  };

  explicit RingsDataset(const Options& options);

  const Options options_;
  const holdfast::ExampleSpec spec_;
  const std::string digest_;
};

}  // namespace holdfast_examples

#endif  // HOLDFAST_EXAMPLES_CUSTOM_DATA_RINGS_DATASET_H_
