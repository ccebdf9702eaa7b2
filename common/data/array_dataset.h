// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_DATA_ARRAY_DATASET_H_
#define HOLDFAST_COMMON_DATA_ARRAY_DATASET_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/data/dataset.h"
#include "common/data/typed_array.h"

namespace holdfast {

// The parts of examples: row i of each array belongs to example i.
struct ExampleArrays {
  TypedArray inputs;
  // Classes: integers, [n] or [n, 1]. At most one of `labels` and `targets` is
  // set.
  std::optional<TypedArray> labels;
  // [n, ...].
  std::optional<TypedArray> targets;
  // [n] or [n, 1].
  std::optional<TypedArray> weights;
};

// Examples stored in arrays, mapped or in memory.
class ArrayDataset final : public Dataset {
 public:
  // Validates everything but the inputs, and digests everything
  // (data_digest.h).
  // Errors: INVALID_ARGUMENT, with the array's file and the row, when the
  // arrays have different numbers of rows, labels are not classes, or targets
  // or weights are not finite numbers.
  static absl::StatusOr<std::unique_ptr<Dataset>> Create(
      ExampleArrays arrays, const Options& options);

  int64_t num_examples() const override { return arrays_.inputs.rows(); }
  const ExampleSpec& spec() const override { return spec_; }
  // Errors: INVALID_ARGUMENT for an input that is not finite.
  absl::Status Read(int64_t index, const ExampleMemory& to) const override;

  std::string GreatestLabelPlace() const override;
  const std::string& digest() const override { return digest_; }
  bool digest_is_sampled() const override { return digest_is_sampled_; }
  Footprint footprint() const override { return footprint_; }

 private:
  ArrayDataset() = default;

  absl::Status CheckLabels();
  void Digest(ReadingProgress* progress);

  ExampleArrays arrays_;
  ExampleSpec spec_;
  InputScaling scaling_;
  int64_t input_size_ = 0;
  int64_t greatest_label_ = -1;
  int64_t greatest_label_row_ = 0;
  std::string digest_;
  bool digest_is_sampled_ = false;
  Footprint footprint_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_ARRAY_DATASET_H_
