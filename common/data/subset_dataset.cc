#include "common/data/subset_dataset.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

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
  const absl::StatusOr<int64_t> held_out = NumHeldOut(num_examples, holdout);
  if (!held_out.ok()) return held_out.status();
  // As SubsetDataset: the first of the order are held out.
  const ExampleOrder order(holdout.seed(), num_examples);
  std::vector<bool> is_held_out(num_examples);
  for (int64_t place = 0; place < *held_out; ++place) {
    is_held_out[order.At(place)] = true;
  }
  return is_held_out;
}

absl::StatusOr<SubsetDataset::Parts> SubsetDataset::HoldOut(
    std::shared_ptr<const Dataset> whole, const proto::Holdout& holdout) {
  const int64_t examples = whole->num_examples();
  const absl::StatusOr<int64_t> count = NumHeldOut(examples, holdout);
  if (!count.ok()) {
    return absl::Status(
        count.status().code(),
        absl::StrCat("data.holdout: ", count.status().message()));
  }
  const int64_t held_out = *count;
  Parts parts;
  parts.held_out.reset(
      new SubsetDataset(whole, holdout.seed(), /*first=*/0, held_out));
  parts.kept.reset(new SubsetDataset(std::move(whole), holdout.seed(), held_out,
                                     examples - held_out));
  return parts;
}

}  // namespace holdfast
