// SPDX-License-Identifier: Apache-2.0
#include "common/tensor/digest.h"

#include <algorithm>
#include <numeric>

#include "absl/base/config.h"
#include "absl/strings/string_view.h"
#include "common/tensor/shape.h"

namespace holdfast {

#if !defined(ABSL_IS_LITTLE_ENDIAN)
#error "Values are digested as stored in memory, which must be little-endian."
#endif

std::string DigestOfVariables(
    absl::Span<const proto::Variable> variables,
    absl::Span<const absl::Span<const float>> values) {
  std::vector<size_t> by_name(variables.size());
  std::iota(by_name.begin(), by_name.end(), 0);
  std::sort(by_name.begin(), by_name.end(), [&](size_t a, size_t b) {
    return variables[a].name() < variables[b].name();
  });

  VariablesDigest digest;
  for (const size_t i : by_name) {
    digest.Begin(variables[i]);
    digest.Add(values[i]);
  }
  return digest.HexDigest();
}

void VariablesDigest::Begin(const proto::Variable& variable) {
  constexpr absl::string_view kEnd("\0", 1);
  sha256_.Update(variable.name());
  sha256_.Update(kEnd);
  sha256_.Update(ShapeString(variable.shape()));
  sha256_.Update(kEnd);
}

void VariablesDigest::Add(absl::Span<const float> values) {
  sha256_.Update(values.data(), values.size() * sizeof(float));
}

}  // namespace holdfast
