// SPDX-License-Identifier: Apache-2.0
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
#include "common/job/example_order.h"
#include "proto/job.pb.h"

namespace holdfast {

// Returns, for each example, whether `holdout` takes it: round(fraction x n) of
// the n examples are taken, at least one, and not all. The choice depends only
// on the number of examples, fraction and seed.
// Errors: INVALID_ARGUMENT when there are fewer than two examples.
absl::StatusOr<std::vector<bool>> HeldOutExamples(
    int64_t num_examples, const proto::Holdout& holdout);

// The indices of the marked examples, and of the others, in increasing order,
// with random access. Takes 1.25 bits per example.
//
// Immutable, thus thread-safe.
class MarkedExamples {
 public:
  explicit MarkedExamples(const std::vector<bool>& marks);

  // The index of the example that has number `place`, counting from 0, among
  // the marked examples or, if not `marked`, among the others. There must be
  // one.
  int64_t At(int64_t place, bool marked) const;

  // Bytes of memory.
  int64_t bytes() const {
    return (words_.size() + marked_before_.size()) * sizeof(uint64_t);
  }

 private:
  static constexpr int64_t kWordBits = 64;
  static constexpr int64_t kBlockWords = 4;

  // Bit i modulo 64 of word i / 64 says whether example i is marked.
  std::vector<uint64_t> words_;
  // The number of marked examples before each block of kBlockWords words.
  std::vector<int64_t> marked_before_;
};

// A subset of a data set: the examples that a holdout keeps, or those that it
// holds out. Access to each costs the same.
class SubsetDataset final : public Dataset {
 public:
  struct Parts {
    std::unique_ptr<SubsetDataset> kept;
    std::unique_ptr<SubsetDataset> held_out;
  };
  // Splits `whole`, the training set of `data`, as data.holdout says: holds out
  // the examples of HeldOutExamples and keeps the others. With data.shuffle
  // FULL both parts are in a random order, which takes no memory; otherwise
  // both are in the order of `whole`, so that reading a part sequentially reads
  // `whole` from beginning to end.
  // Errors: those of HeldOutExamples.
  static absl::StatusOr<Parts> HoldOut(std::shared_ptr<const Dataset> whole,
                                       const proto::Data& data);

  int64_t num_examples() const override { return count_; }
  const ExampleSpec& spec() const override { return whole_->spec(); }
  absl::Status Read(int64_t index, const ExampleMemory& to) const override {
    return whole_->Read(IndexInWhole(index), to);
  }
  std::string GreatestLabelPlace() const override {
    return whole_->GreatestLabelPlace();
  }
  // The digest of the whole data set.
  const std::string& digest() const override { return whole_->digest(); }
  bool digest_is_sampled() const override {
    return whole_->digest_is_sampled();
  }
  Footprint footprint() const override;
  int64_t skipped_rows() const override { return whole_->skipped_rows(); }
  absl::Span<const std::string> skipped_because() const override {
    return whole_->skipped_because();
  }

 private:
  SubsetDataset(std::shared_ptr<const Dataset> whole, uint64_t seed,
                std::shared_ptr<const MarkedExamples> in_order, bool held_out,
                int64_t first, int64_t count)
      : whole_(std::move(whole)),
        drawn_(seed, whole_->num_examples()),
        in_order_(std::move(in_order)),
        held_out_(held_out),
        first_(first),
        count_(count) {}

  int64_t IndexInWhole(int64_t index) const {
    return in_order_ == nullptr ? drawn_.At(first_ + index)
                                : in_order_->At(index, held_out_);
  }

  const std::shared_ptr<const Dataset> whole_;
  const ExampleOrder drawn_;
  // Shared by both parts; marks the examples held out. Null if the order is
  // drawn_.
  const std::shared_ptr<const MarkedExamples> in_order_;
  const bool held_out_;
  // The position of the first example in drawn_.
  const int64_t first_;
  const int64_t count_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_SUBSET_DATASET_H_
