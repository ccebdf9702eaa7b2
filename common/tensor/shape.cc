// SPDX-License-Identifier: Apache-2.0
#include "common/tensor/shape.h"

#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace holdfast {

absl::StatusOr<int64_t> NumElements(absl::Span<const int64_t> shape) {
  int64_t product = 1;
  bool empty = false;
  for (const int64_t dimension : shape) {
    if (dimension < 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "shape ", ShapeString(shape), " has a negative dimension"));
    }
    if (dimension == 0) {
      empty = true;
      continue;
    }
    if (product > std::numeric_limits<int64_t>::max() / dimension) {
      return absl::InvalidArgumentError(
          absl::StrCat("shape ", ShapeString(shape),
                       " has more elements than 64 bits can count"));
    }
    product *= dimension;
  }
  return empty ? 0 : product;
}

std::string ShapeString(absl::Span<const int64_t> shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ","), "]");
}

}  // namespace holdfast
