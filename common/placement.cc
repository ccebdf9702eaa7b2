#include "common/placement.h"

#include <algorithm>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/shape.h"

namespace holdfast {
namespace {

// The bytes of each variable.
// Errors: as PlaceVariables says of shapes.
absl::StatusOr<std::vector<int64_t>> Sizes(
    absl::Span<const VariableShape> variables) {
  std::vector<int64_t> sizes;
  sizes.reserve(variables.size());
  int64_t room = std::numeric_limits<int64_t>::max();
  for (const VariableShape& variable : variables) {
    const absl::StatusOr<int64_t> elements = NumElements(variable.shape);
    if (!elements.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "variable \"", variable.name, "\": ", elements.status().message()));
    }
    constexpr int64_t kElementBytes = sizeof(float);
    if (*elements > room / kElementBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("variable \"", variable.name, "\" of shape ",
                       ShapeString(variable.shape),
                       ": the variables up to it have more bytes than 64 bits "
                       "can count"));
    }
    sizes.push_back(*elements * kElementBytes);
    room -= sizes.back();
  }
  return sizes;
}

}  // namespace

absl::StatusOr<std::vector<uint32_t>> PlaceVariables(
    absl::Span<const VariableShape> variables, uint32_t num_ps,
    proto::PlacementStrategy strategy) {
  if (num_ps == 0) {
    return absl::InvalidArgumentError("variables need a ps to be placed on");
  }
  absl::StatusOr<std::vector<int64_t>> sizes = Sizes(variables);
  if (!sizes.ok()) return sizes.status();

  std::vector<uint32_t> placement;
  placement.reserve(variables.size());
  switch (strategy) {
    case proto::ROUND_ROBIN:
      for (size_t i = 0; i < variables.size(); ++i) {
        placement.push_back(static_cast<uint32_t>(i % num_ps));
      }
      return placement;
    case proto::GREEDY_BY_BYTES: {
      // A linear search each time: jobs have thousands of variables and tens of
      // ps, once.
      std::vector<int64_t> load(num_ps, 0);
      for (const int64_t size : *sizes) {
        const auto least = std::min_element(load.begin(), load.end());
        placement.push_back(static_cast<uint32_t>(least - load.begin()));
        *least += size;
      }
      return placement;
    }
    default:
      return absl::InvalidArgumentError(absl::StrCat(
          "unknown placement strategy ", static_cast<int>(strategy)));
  }
}

}  // namespace holdfast
