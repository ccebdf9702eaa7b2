#include "common/data/subset_dataset.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"

namespace holdfast {

absl::StatusOr<SubsetDataset::Parts> SubsetDataset::HoldOut(
    std::shared_ptr<const Dataset> whole, const proto::Holdout& holdout) {
  const int64_t examples = whole->num_examples();
  if (examples < 2) {
    return absl::InvalidArgumentError(
        "data.holdout: there is one example, which cannot be divided");
  }
  const int64_t held_out = std::clamp<int64_t>(
      std::llround(holdout.fraction() * static_cast<double>(examples)), 1,
      examples - 1);
  Parts parts;
  parts.held_out.reset(
      new SubsetDataset(whole, holdout.seed(), /*first=*/0, held_out));
  parts.kept.reset(new SubsetDataset(std::move(whole), holdout.seed(), held_out,
                                     examples - held_out));
  return parts;
}

}  // namespace holdfast
