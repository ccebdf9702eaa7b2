// SPDX-License-Identifier: Apache-2.0
#include "common/data/subset_dataset.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace holdfast {
namespace {

absl::StatusOr<int64_t> NumHeldOut(int64_t num_examples,
                                   const proto::Holdout& holdout) {
  if (num_examples < 2) {
    return absl::InvalidArgumentError(
        "there is one example, which cannot be divided");
  }
  return std::clamp<int64_t>(
      std::llround(holdout.fraction() * static_cast<double>(num_examples)), 1,
      num_examples - 1);
}

}  // namespace

absl::StatusOr<std::vector<bool>> HeldOutExamples(
    int64_t num_examples, const proto::Holdout& holdout) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto held_out,
                            NumHeldOut(num_examples, holdout));
  // As in SubsetDataset, the first examples of the order are held out.
  const ExampleOrder order(holdout.seed(), num_examples);
  std::vector<bool> is_held_out(num_examples);
  for (int64_t place = 0; place < held_out; ++place) {
    is_held_out[order.At(place)] = true;
  }
  return is_held_out;
}

MarkedExamples::MarkedExamples(const std::vector<bool>& marks)
    : words_((marks.size() + kWordBits - 1) / kWordBits) {
  for (size_t i = 0; i < marks.size(); ++i) {
    if (marks[i]) words_[i / kWordBits] |= uint64_t{1} << (i % kWordBits);
  }
  int64_t marked = 0;
  for (size_t word = 0; word < words_.size(); ++word) {
    if (word % kBlockWords == 0) marked_before_.push_back(marked);
    marked += __builtin_popcountll(words_[word]);
  }
}

int64_t MarkedExamples::At(int64_t place, bool marked) const {
  const auto before = [&](int64_t block) {
    return marked ? marked_before_[block]
                  : block * kBlockWords * kWordBits - marked_before_[block];
  };
  // The last block before which there are at most `place` such examples.
  int64_t block = 0;
  for (int64_t end = marked_before_.size(); end - block > 1;) {
    const int64_t middle = block + (end - block) / 2;
    (before(middle) <= place ? block : end) = middle;
  }
  int64_t left = place - before(block);
  int64_t word = block * kBlockWords;
  const auto bits_of = [&](int64_t i) {
    return marked ? words_[i] : ~words_[i];
  };
  uint64_t bits = bits_of(word);
  for (int count; (count = __builtin_popcountll(bits)) <= left;) {
    left -= count;
    bits = bits_of(++word);
  }
  for (; left > 0; --left) bits &= bits - 1;
  return word * kWordBits + __builtin_ctzll(bits);
}

absl::StatusOr<SubsetDataset::Parts> SubsetDataset::HoldOut(
    std::shared_ptr<const Dataset> whole, const proto::Data& data) {
  const proto::Holdout& holdout = data.holdout();
  const int64_t examples = whole->num_examples();
  const absl::StatusOr<int64_t> count = NumHeldOut(examples, holdout);
  if (!count.ok()) {
    return absl::Status(
        count.status().code(),
        absl::StrCat("data.holdout: ", count.status().message()));
  }
  std::shared_ptr<const MarkedExamples> in_order;
  if (data.shuffle() != proto::Data::FULL) {
    HOLDFAST_ASSIGN_OR_RETURN(const auto marks,
                              HeldOutExamples(examples, holdout));
    in_order = std::make_shared<MarkedExamples>(marks);
  }
  const int64_t held_out = *count;
  Parts parts;
  parts.held_out.reset(new SubsetDataset(whole, holdout.seed(), in_order,
                                         /*held_out=*/true, /*first=*/0,
                                         held_out));
  parts.kept.reset(new SubsetDataset(
      std::move(whole), holdout.seed(), std::move(in_order),
      /*held_out=*/false, /*first=*/held_out, examples - held_out));
  return parts;
}

Dataset::Footprint SubsetDataset::footprint() const {
  Footprint footprint = whole_->footprint();
  if (in_order_ != nullptr) footprint.memory += in_order_->bytes();
  return footprint;
}

}  // namespace holdfast
