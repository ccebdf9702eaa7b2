// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_DATA_DATA_DIGEST_H_
#define HOLDFAST_COMMON_DATA_DATA_DIGEST_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/sha256.h"
#include "common/data/reading_progress.h"

namespace holdfast {

// The digest of a data set whose bytes are mapped or in memory: the SHA-256 of
// its parts, in sequence. A set above a size limit is sampled, so that not all
// of it is read: of each part the digest covers its size and some blocks,
// including the first and the last; the remaining range is divided into as many
// equal ranges as there are other blocks, with one block in each, at a
// pseudorandom position that depends only on the part's size. So the digest
// distinguishes sets with different sizes or headers, and sets that were made
// in different ways, but may miss a change of a few bytes.
//
// Thread-compatible.
class DataDigest {
 public:
  struct Options {
    // The size in bytes above which a set is sampled.
    int64_t limit = int64_t{1} << 30;
    // The number of blocks of a sampled set, distributed over its parts by
    // their size. A part that its blocks would cover is digested whole.
    int64_t blocks = 256;
    int64_t block_bytes = 64 << 10;
    // Null for no reports.
    ReadingProgress* progress = nullptr;
  };

  // For a set whose parts have `total_bytes` together.
  explicit DataDigest(int64_t total_bytes)
      : DataDigest(total_bytes, Options()) {}
  DataDigest(int64_t total_bytes, const Options& options);

  // Adds what determines how the parts are read: types, shapes, names. A header
  // is always digested whole.
  void AddHeader(absl::string_view header) { sha_.Update(header); }
  void AddPart(absl::Span<const uint8_t> part);

  bool sampled() const { return total_bytes_ > options_.limit; }
  // In hexadecimal.
  std::string Hex() const { return sha_.HexDigest(); }

 private:
  void Update(absl::Span<const uint8_t> bytes);

  const int64_t total_bytes_;
  const Options options_;
  Sha256 sha_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_DATA_DIGEST_H_
