#include "worker/trainer/digest.h"

#include <algorithm>
#include <numeric>

#include "absl/base/config.h"
#include "absl/strings/string_view.h"
#include "common/sha256.h"
#include "common/shape.h"

namespace holdfast {

#if !defined(ABSL_IS_LITTLE_ENDIAN)
#error "Values are digested as they lie in memory, which must be little-endian."
#endif

std::string DigestOfVariables(absl::Span<const proto::Variable> variables,
                              absl::Span<const std::vector<float>> values) {
  std::vector<size_t> by_name(variables.size());
  std::iota(by_name.begin(), by_name.end(), 0);
  std::sort(by_name.begin(), by_name.end(), [&](size_t a, size_t b) {
    return variables[a].name() < variables[b].name();
  });

  constexpr absl::string_view kEnd("\0", 1);
  Sha256 digest;
  for (const size_t i : by_name) {
    digest.Update(variables[i].name());
    digest.Update(kEnd);
    digest.Update(ShapeString(variables[i].shape()));
    digest.Update(kEnd);
    digest.Update(values[i].data(), values[i].size() * sizeof(float));
  }
  return digest.HexDigest();
}

}  // namespace holdfast
