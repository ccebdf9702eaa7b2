// SPDX-License-Identifier: Apache-2.0
#include "common/job/given_values.h"

#include "absl/strings/str_cat.h"
#include "common/base/sha256.h"

namespace holdfast {
namespace {

// The length of a SHA-256.
constexpr size_t kHexDigits = 64;

}  // namespace

absl::Status CheckGiven(const proto::Initializer::Given& given,
                        uint64_t elements) {
  const uint64_t digests = NumGivenRanges(elements);
  if (static_cast<uint64_t>(given.sha256_size()) != digests) {
    return absl::InvalidArgumentError(absl::StrCat(
        "given: ", given.sha256_size(), " digests, must be ", digests,
        ": one for each ", kGivenRange, " of ", elements, " elements"));
  }
  for (int i = 0; i < given.sha256_size(); ++i) {
    const std::string& digest = given.sha256(i);
    if (digest.size() == kHexDigits &&
        digest.find_first_not_of("0123456789abcdef") == std::string::npos) {
      continue;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("given.sha256[", i, "]: not ", kHexDigits,
                     " lower-case hexadecimal digits"));
  }
  return absl::OkStatus();
}

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
  for (uint64_t i = 0; i < NumGivenRanges(values.size()); ++i) {
    given.add_sha256(GivenDigest(values.subspan(i * kGivenRange, kGivenRange)));
  }
  return given;
}

}  // namespace holdfast
