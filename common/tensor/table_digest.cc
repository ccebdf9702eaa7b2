// SPDX-License-Identifier: Apache-2.0
#include "common/tensor/table_digest.h"

#include "absl/base/config.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace holdfast {

#if !defined(ABSL_IS_LITTLE_ENDIAN)
#error "Rows are digested as stored in memory, which must be little-endian."
#endif

void RowsDigest::Add(uint64_t id, absl::Span<const float> values) {
  sha256_.Update(&id, sizeof(id));
  sha256_.Update(values.data(), values.size() * sizeof(float));
}

std::string DigestOfTable(const proto::EmbeddingTable& declared,
                          absl::Span<const std::string> bucket_digests) {
  constexpr absl::string_view kEnd("\0", 1);
  Sha256 sha256;
  sha256.Update(declared.name());
  sha256.Update(kEnd);
  sha256.Update(absl::StrCat("[*,", declared.row_length(), "]"));
  sha256.Update(kEnd);
  for (const std::string& digest : bucket_digests) sha256.Update(digest);
  return sha256.HexDigest();
}

}  // namespace holdfast
