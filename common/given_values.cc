#include "common/given_values.h"

#include "common/sha256.h"

namespace holdfast {

std::string GivenDigest(const Buffer& values) {
  Sha256 digest;
  for (const Buffer::Span& span : values.spans()) {
    digest.Update(span.data, span.size);
  }
  return digest.HexDigest();
}

std::string GivenDigest(absl::Span<const float> values) {
  Sha256 digest;
  digest.Update(values.data(), values.size() * sizeof(float));
  return digest.HexDigest();
}

proto::Initializer::Given GivenDigests(absl::Span<const float> values) {
  proto::Initializer::Given given;
  for (uint64_t i = 0; i < NumGivenStretches(values.size()); ++i) {
    given.add_sha256(
        GivenDigest(values.subspan(i * kGivenStretch, kGivenStretch)));
  }
  return given;
}

}  // namespace holdfast
