#ifndef HOLDFAST_PS_SERVER_PROTOCOL_MEMORY_PLAN_H_
#define HOLDFAST_PS_SERVER_PROTOCOL_MEMORY_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tensor/row_bucket.h"
#include "proto/cluster.pb.h"

namespace holdfast {

// How a shard's memory is given out, so that a job that has begun never runs
// out of it. With V the bytes of all slices on the shard, and T those of the
// trainable ones, it needs
//
//     V                       the values
//   + T x slots               of the optimizers, variable by variable
//   + T                       the next version, in the making
//   + T                       an earlier version that is still being read: by
//                             a pin, all of it
//   + T + T x slots           values and slots that are being written to a
//                             checkpoint, where the job takes any
//   + tables with max_rows    that many rows, with their indexes
//   + P x reserved_pushes     with P = T + the rows that a push has at most:
//                             for each worker one push (asynchronous), or as
//                             many as any worker has seats in a step
//                             (synchronous, ceil(N / M))
//
// and what is left goes to pushes that come early, then, nine tenths of it, to
// tables without max_rows, then to versions that processes of the same host
// read in place (docs/protocol/same_host.md), T each, then to pinned versions;
// with tables, half of it, and the other half to copies of rows that change
// while a version is held. These may become more, for a checkpoint or a pin
// that is held for long: then no further version is pinned. Not counted are the
// process itself, some 30 MB, and what lies around tensors in gRPC's buffers,
// 20 to 50 MB (docs/performance.md). Parts lie in the memory that is reserved
// for their push from their first byte, and answers are sent from the versions;
// but one that is encoded is a copy, until it is sent.
struct MemoryPlan {
  // The sum above.
  int64_t needed_bytes = 0;
  // Pushes of one worker that always have room, and of all workers beside them.
  size_t reserved_per_worker = 1;
  size_t extra_pushes = 0;
  // Of one worker, reserved or not.
  size_t max_pushes_per_worker = 1;
  // What the embedding tables without max_rows may take, together.
  int64_t table_bytes = 0;
  // Distinct versions that may be lent: in a synchronous job those before and
  // after a step, that of a worker which is late, and one that is evaluated;
  // asynchronous, two for each worker, and two more. Fewer where there is no
  // room: 0 has all values sent.
  size_t max_lent_versions = 0;
  // Distinct versions that pins may hold.
  size_t max_pinned_versions = 1;
  // Copies of rows with which no further version is pinned.
  int64_t held_row_bytes = 0;
};

// The plan for the slices of ps `ps`, and its buckets of the tables.
// `declaration` has its defaults filled in; its `checkpoints` are absent where
// none are taken. `limit_bytes` 0: no limit. `lends`: whether values lie where
// they can be lent. Errors: RESOURCE_EXHAUSTED, with the sum, when it is above
// the limit; those of EmbeddingTable::Create.
absl::StatusOr<MemoryPlan> PlanMemory(const proto::Declaration& declaration,
                                      const std::vector<proto::Slice>& slices,
                                      uint32_t ps, int64_t limit_bytes,
                                      bool lends = false,
                                      BucketRange buckets = {});

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_PROTOCOL_MEMORY_PLAN_H_
