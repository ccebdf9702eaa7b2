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
// its parts, one after the other. Of a set above a limit it takes samples, so
// that not all of it is read: of each part its size and some blocks, among them
// the first and the last; the others lie anywhere, one in each of as many
// ranges of equal size, at places that follow from the part's size alone. So
// it tells sets of other sizes or headers apart, and such as were made in
// another way; a change of some bytes it may miss.
//
// Thread-compatible.
class DataDigest {
 public:
  struct Options {
    // Sets above it are sampled.
    int64_t limit = int64_t{1} << 30;
    // Of a sampled set, spread over its parts by their size. A part that they
    // would cover is digested whole.
    int64_t blocks = 256;
    int64_t block_bytes = 64 << 10;
    // Null: nobody is told.
    ReadingProgress* progress = nullptr;
  };

  // Of a set whose parts have `total_bytes`.
  explicit DataDigest(int64_t total_bytes)
      : DataDigest(total_bytes, Options()) {}
  DataDigest(int64_t total_bytes, const Options& options);

  // What says how the parts are to be read: types, shapes, names. Always whole.
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
