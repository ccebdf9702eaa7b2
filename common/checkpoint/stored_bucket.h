// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_CHECKPOINT_STORED_BUCKET_H_
#define HOLDFAST_COMMON_CHECKPOINT_STORED_BUCKET_H_

#include <cstdint>

namespace holdfast {

// The numbers of entries in the bytes of a bucket, in this order
// (docs/formats/checkpoint.md).
struct StoredBucket {
  uint64_t rows = 0;
  uint64_t candidates = 0;
  // Removed ids.
  uint64_t removed_rows = 0;
  uint64_t removed_candidates = 0;
  // All entries of the bucket; its bytes may have only those that changed.
  uint64_t all_rows = 0;
  uint64_t all_candidates = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_CHECKPOINT_STORED_BUCKET_H_
