#ifndef HOLDFAST_COMMON_DATA_SUBSET_DATASET_H_
#define HOLDFAST_COMMON_DATA_SUBSET_DATASET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/data/dataset.h"
#include "common/example_order.h"
#include "proto/job.pb.h"

namespace holdfast {

// Which of so many examples a holdout takes: round(fraction x n) of them, at
// least one, and not all. Which they are follows from the number of examples,
// fraction and seed alone.
// Errors: INVALID_ARGUMENT when there are fewer than two.
absl::StatusOr<std::vector<bool>> HeldOutExamples(
    int64_t num_examples, const proto::Holdout& holdout);

// Some examples of a data set: those at a stretch of places in an order that is
// a permutation of all by a seed (example_order.h). So any example costs the
// same, and nothing is kept for it.
class SubsetDataset final : public Dataset {
 public:
  struct Parts {
    std::unique_ptr<Dataset> kept;
    std::unique_ptr<Dataset> held_out;
  };
  // Holds those of HeldOutExamples out and keeps the others.
  // Errors: those of HeldOutExamples.
  static absl::StatusOr<Parts> HoldOut(std::shared_ptr<const Dataset> whole,
                                       const proto::Holdout& holdout);

  int64_t num_examples() const override { return count_; }
  const ExampleSpec& spec() const override { return whole_->spec(); }
  absl::Status Read(int64_t index, const ExampleMemory& to) const override {
    return whole_->Read(order_.At(first_ + index), to);
  }
  std::string GreatestLabelPlace() const override {
    return whole_->GreatestLabelPlace();
  }
  // Of the whole.
  const std::string& digest() const override { return whole_->digest(); }
  bool digest_is_sampled() const override {
    return whole_->digest_is_sampled();
  }
  Footprint footprint() const override { return whole_->footprint(); }
  int64_t skipped_rows() const override { return whole_->skipped_rows(); }
  absl::Span<const std::string> skipped_because() const override {
    return whole_->skipped_because();
  }

 private:
  SubsetDataset(std::shared_ptr<const Dataset> whole, uint64_t seed,
                int64_t first, int64_t count)
      : whole_(std::move(whole)),
        order_(seed, whole_->num_examples()),
        first_(first),
        count_(count) {}

  const std::shared_ptr<const Dataset> whole_;
  const ExampleOrder order_;
  // In the order.
  const int64_t first_;
  const int64_t count_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_SUBSET_DATASET_H_
