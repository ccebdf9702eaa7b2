// SPDX-License-Identifier: Apache-2.0
#include "client/first_values.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/job/given_values.h"
#include "common/tensor/shape.h"

namespace holdfast {

absl::StatusOr<absl::Span<const float>> FirstValuesOf(
    const FirstValues& values, const proto::Declaration& declaration,
    size_t variable) {
  const proto::Variable& declared = declaration.variables(variable);
  const auto error = [&](const absl::Status& why) {
    return absl::Status(
        why.code(), absl::StrCat("first values of variable \"", declared.name(),
                                 "\": ", why.message()));
  };
  const absl::StatusOr<int64_t> elements = NumElements(declared.shape());
  if (!elements.ok()) return error(elements.status());
  absl::StatusOr<absl::Span<const float>> found = values(variable);
  if (!found.ok()) return error(found.status());
  if (found->size() == static_cast<uint64_t>(*elements)) return found;
  return error(absl::InvalidArgumentError(
      absl::StrCat(found->size(), " elements, but the declared shape is ",
                   ShapeString(declared.shape()))));
}

absl::Status DigestFirstValues(const FirstValues& values,
                               proto::Declaration* declaration) {
  for (int i = 0; i < declaration->variables_size(); ++i) {
    proto::Initializer& initializer =
        *declaration->mutable_variables(i)->mutable_initializer();
    if (!initializer.has_given()) continue;
    HOLDFAST_ASSIGN_OR_RETURN(const auto found,
                              FirstValuesOf(values, *declaration, i));
    *initializer.mutable_given() = GivenDigests(found);
  }
  return absl::OkStatus();
}

}  // namespace holdfast
