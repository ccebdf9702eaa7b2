// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_CHECKPOINT_STORED_BUCKET_H_
#define HOLDFAST_COMMON_CHECKPOINT_STORED_BUCKET_H_

#include <cstdint>

namespace holdfast {

// The numbers of entries of each kind in the bytes of a bucket, in which the
// kinds have this order (docs/formats/checkpoint.md).
struct StoredBucket {
  uint64_t rows = 0;
  uint64_t candidates = 0;
  // Ids that were removed as rows, and ids that were removed as candidates.
  uint64_t removed_rows = 0;
  uint64_t removed_candidates = 0;
  // The numbers of all rows and candidates in the bucket. Its bytes may have
  // fewer: only those that changed.
  uint64_t all_rows = 0;
  uint64_t all_candidates = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_CHECKPOINT_STORED_BUCKET_H_
