#ifndef HOLDFAST_COMMON_CHECKPOINT_STORED_BUCKET_H_
#define HOLDFAST_COMMON_CHECKPOINT_STORED_BUCKET_H_

#include <cstdint>

namespace holdfast {

// How many of each there are in the bytes of a bucket, in this order
// (docs/formats/checkpoint.md).
struct StoredBucket {
  uint64_t rows = 0;
  uint64_t candidates = 0;
  // Ids.
  uint64_t removed_rows = 0;
  uint64_t removed_candidates = 0;
  // That the bucket has; in the bytes there may be only those that changed.
  uint64_t all_rows = 0;
  uint64_t all_candidates = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_CHECKPOINT_STORED_BUCKET_H_
