// SPDX-License-Identifier: Apache-2.0

// The bucket and the ps to which a row of an embedding table belongs
// (docs/protocol/tables.md, "Buckets").
//
// Pure functions; safe from any thread.
#ifndef HOLDFAST_COMMON_TENSOR_ROW_BUCKET_H_
#define HOLDFAST_COMMON_TENSOR_ROW_BUCKET_H_

#include <cstdint>

namespace holdfast {

inline constexpr uint32_t kBucketBits = 14;
inline constexpr uint32_t kRowBuckets = uint32_t{1} << kBucketBits;

// The hash of a row's id: the finalizer of SplitMix64 (Steele, Lea and Flood,
// "Fast splittable pseudorandom number generators", OOPSLA 2014, with the
// constants of Stafford's variant 13). A bijection: no two ids share a hash.
// It must never change, since checkpoints and placement depend on it.
constexpr uint64_t HashRowId(uint64_t id) {
  id = (id ^ (id >> 30)) * 0xbf58476d1ce4e5b9;
  id = (id ^ (id >> 27)) * 0x94d049bb133111eb;
  return id ^ (id >> 31);
}

constexpr uint32_t BucketOfHash(uint64_t hash) {
  return static_cast<uint32_t>(hash >> (64 - kBucketBits));
}
constexpr uint32_t BucketOfRow(uint64_t id) {
  return BucketOfHash(HashRowId(id));
}

// Consecutive buckets: [begin, end).
struct BucketRange {
  uint32_t begin = 0;
  uint32_t end = kRowBuckets;

  constexpr uint32_t size() const { return end - begin; }
  constexpr bool Contains(uint32_t bucket) const {
    return begin <= bucket && bucket < end;
  }
};

// The buckets that ps task `ps` holds if there are `num_ps` ps.
constexpr BucketRange BucketsOfPs(uint32_t ps, uint32_t num_ps) {
  const auto begin = [num_ps](uint64_t i) {
    return static_cast<uint32_t>(kRowBuckets * i / num_ps);
  };
  return {begin(ps), begin(uint64_t{ps} + 1)};
}

// The index of the ps that holds `bucket` if there are `num_ps` ps: the only
// one whose BucketsOfPs contains the bucket.
constexpr uint32_t PsOfBucket(uint32_t bucket, uint32_t num_ps) {
  return static_cast<uint32_t>(((uint64_t{bucket} + 1) * num_ps - 1) /
                               kRowBuckets);
}

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_TENSOR_ROW_BUCKET_H_
