#ifndef HOLDFAST_PS_SERVER_SHARD_STAGED_PUSHES_H_
#define HOLDFAST_PS_SERVER_SHARD_STAGED_PUSHES_H_

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/buffer.h"
#include "common/ids.h"
#include "ps_server/shard/push_id.h"
#include "ps_server/store/dense_store.h"

namespace holdfast {

// The gradient that a part brings for a stretch of a slice.
struct GradientPiece {
  // Index into DenseStore::slices().
  size_t slice = 0;
  // In elements of the whole variable. Inside the slice.
  uint64_t begin = 0;
  uint64_t size = 0;
  // size x 4 bytes.
  Buffer data;
};

// One part of a push, tested against the declaration.
struct StagedPart {
  PushId push;
  GlobalStep step;
  uint32_t part = 0;
  uint32_t num_parts = 1;
  std::vector<GradientPiece> pieces;
};

// The pushes that a shard has received and not yet decided.
//
// A push arrives in parts, in any order and more than once; it is complete when
// all its parts are here and cover every trainable slice
// (docs/life_of_a_step.md, step 2). Pieces keep the memory that they came in.
//
// Thread-compatible.
// Invariants: bytes() is the sum over held pieces; a push holds no element
// twice; a worker has at most max_pushes_per_worker pushes here.
class StagedPushes {
 public:
  // Before the first Add. `slices` must outlive this object. A worker may hold
  // `max_pushes_per_worker`; each costs at most a copy of the trainable slices.
  void Configure(const std::vector<StoredSlice>* slices,
                 size_t max_pushes_per_worker);

  // Keeps `part`, unless it is held already.
  // Errors: RESOURCE_EXHAUSTED when the worker has too many pushes here;
  // INVALID_ARGUMENT when the part contradicts those held (nothing of it is
  // kept), or when the last part leaves elements uncovered (the push is
  // dropped, for no further part could mend it).
  absl::Status Add(StagedPart part);

  // The gradient of `push` by slice, empty for slices that are not trainable.
  // Errors: INTERNAL, saying what is missing, when it is not held whole, or is
  // not of `step`.
  absl::StatusOr<std::vector<Buffer>> Find(const PushId& push,
                                           GlobalStep step) const;

  // Drops every push of `step` and earlier ones, and says which they were.
  std::vector<PushId> DropThrough(GlobalStep step);

  void Clear();

  int64_t bytes() const { return bytes_; }

 private:
  struct StagedPush {
    GlobalStep step;
    uint32_t num_parts = 0;
    std::set<uint32_t> parts;
    // By slice: the pieces by their first element.
    std::map<size_t, std::map<uint64_t, GradientPiece>> pieces;
    int64_t bytes = 0;
  };
  using Pushes = std::map<PushId, StagedPush>;

  absl::Status CheckNoOverlap(const StagedPush& push,
                              const StagedPart& part) const;
  absl::Status CheckCovered(const StagedPush& push) const;
  void Drop(Pushes::iterator push);

  const std::vector<StoredSlice>* slices_ = nullptr;
  size_t max_pushes_per_worker_ = 0;
  Pushes pushes_;
  std::map<TaskId, size_t> pushes_by_worker_;
  int64_t bytes_ = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SHARD_STAGED_PUSHES_H_
