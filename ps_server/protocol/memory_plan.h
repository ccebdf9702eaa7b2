// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_PROTOCOL_MEMORY_PLAN_H_
#define HOLDFAST_PS_SERVER_PROTOCOL_MEMORY_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tensor/row_bucket.h"
#include "proto/cluster.pb.h"

namespace holdfast {

// How a shard's memory is allotted, so that a job that has begun never runs out
// of it. With V the bytes of all slices on the shard, and T the bytes of the
// trainable slices, the shard needs
//
//     V                       the values
//   + T x slots               of the optimizers, variable by variable
//   + T                       the next version, in the making
//   + T                       an earlier version that is still being read;
//                             under a pin, all of it
//   + T + T x slots           values and slots that are being written to a
//                             checkpoint, if the job takes any
//   + tables with max_rows    that many rows, with their indexes
//   + P x reserved_pushes     with P = T + the most rows that a push can have:
//                             for each worker one push (asynchronous), or as
//                             many as any worker has seats in a step
//                             (synchronous, ceil(N / M))
//
// What is left goes to pushes that come early; then nine tenths of the rest to
// tables without max_rows; then up to 64 MiB to rows that processes on the same
// host read in place (docs/protocol/same_host.md); then to versions that they
// read in place, T each; then to pinned versions.
// If there are tables, pinned versions get only half, and the other half goes
// to copies of rows that change while a version is held. These copies may
// exceed their half while a checkpoint or a pin is held for long; no further
// version is pinned then. Not counted are the process itself, about 30 MB, and
// what surrounds tensors in gRPC's buffers, 20 to 50 MB (docs/performance.md).
// Parts are received into the memory reserved for their push from the first
// byte on, and answers are sent from the versions; only an encoded answer is a
// copy, until it is sent.
struct MemoryPlan {
  // The sum in the table above.
  int64_t needed_bytes = 0;
  // The number of pushes of each worker that always have room, and the number
  // of further pushes of all workers together.
  size_t reserved_per_worker = 1;
  size_t extra_pushes = 0;
  // The maximum number of pushes of one worker, reserved or not.
  size_t max_pushes_per_worker = 1;
  // The memory, in bytes, for all embedding tables without max_rows together.
  int64_t table_bytes = 0;
  // The memory, in bytes, for rows that are lent. What exceeds it is sent.
  int64_t lent_row_bytes = 0;
  // The number of distinct versions that may be lent: in a synchronous job four
  // (the versions before and after a step, the version of a late worker, and
  // one that is evaluated); in an asynchronous job two for each worker, and two
  // more. Fewer if there is no room; with 0, all values are sent.
  size_t max_lent_versions = 0;
  // The number of distinct versions that pins may hold.
  size_t max_pinned_versions = 1;
  // The size, in bytes, of the copies of changed rows from which on no further
  // version is pinned.
  int64_t held_row_bytes = 0;
};

// Plans the memory of ps `ps`, for its slices and for `buckets` of each table.
// `declaration` must have its defaults filled in; its `checkpoints` are absent
// if none are taken. `limit_bytes` is the memory limit; 0 means no limit.
// `lends` says whether values are stored in memory that can be lent.
// Errors: RESOURCE_EXHAUSTED, with the sum, when the sum is above the limit;
// those of EmbeddingTable::Create.
absl::StatusOr<MemoryPlan> PlanMemory(const proto::Declaration& declaration,
                                      const std::vector<proto::Slice>& slices,
                                      uint32_t ps, int64_t limit_bytes,
                                      bool lends = false,
                                      BucketRange buckets = {});

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_PROTOCOL_MEMORY_PLAN_H_
