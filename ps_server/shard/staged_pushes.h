// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_SHARD_STAGED_PUSHES_H_
#define HOLDFAST_PS_SERVER_SHARD_STAGED_PUSHES_H_

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/job/ids.h"
#include "common/tensor/encoding.h"
#include "proto/table.pb.h"
#include "ps_server/protocol/push_id.h"
#include "ps_server/shard/push_memory.h"
#include "ps_server/shard/shard_tables.h"
#include "ps_server/store/dense_store.h"

namespace holdfast {

// The gradient that a part brings for a range of a slice.
struct GradientPiece {
  // Index into DenseStore::slices().
  size_t slice = 0;
  // Index of the first element in the whole variable; it is inside the slice.
  uint64_t begin = 0;
  EncodedElements elements;

  uint64_t size() const { return elements.size; }
};

// One part of a push, checked against the declaration.
struct StagedPart {
  PushId push;
  GlobalStep step;
  uint32_t part = 0;
  uint32_t num_parts = 1;
  std::vector<GradientPiece> pieces;
  std::vector<StagedRows> rows;
};

// The pushes that a shard has received and not yet decided.
//
// A push arrives in parts, in any order and more than once; it is complete when
// all its parts are here and cover every trainable slice
// (docs/protocol/life_of_a_step.md, step 2). A part that announces more parts
// than earlier ones did restarts the push, unless the push is complete: its
// sender could not send the push as planned (docs/protocol/same_host.md, H8).
// Pieces stay in the memory in which they were received, which PushMemory
// counts. Of an embedding table, a push need not have all rows.
//
// Thread-compatible.
// Invariants: bytes() is the sum over all pieces and rows that are held; a push
// holds no element or row twice; every push that is held has room in
// PushMemory.
class StagedPushes {
 public:
  // Must be called before the first Add. `slices` must outlive this object.
  // `tables` are the declaration's tables.
  void Configure(const std::vector<StoredSlice>* slices,
                 std::vector<proto::EmbeddingTable> tables,
                 const PushMemory::Options& options);

  // Keeps `part`, unless it is held already. `reserved` says whether the push
  // may take one of its worker's own places (PushMemory); it is read only with
  // the first part of a push that comes.
  // Errors: RESOURCE_EXHAUSTED when there is no room for the push;
  // INVALID_ARGUMENT when the part contradicts parts that are held (then
  // nothing of the part is kept), or when it is the last part and elements are
  // still missing (then the push is dropped, because no further part could
  // complete it).
  absl::Status Add(StagedPart part, bool reserved);

  // A push whose parts are all here.
  struct Whole {
    // The step on whose values the push was computed.
    GlobalStep step;
    // Indexed by slice: the pieces of the slice's gradient, from front to back.
    // Empty for slices that are not trainable.
    std::vector<std::vector<EncodedElements>> gradient;
    // Indexed by table: the rows of the table, in the order of ids. Valid until
    // the push is dropped.
    std::vector<std::vector<const ReceivedRows*>> rows;
  };
  // Returns the whole push. Errors: INTERNAL, saying what is missing, when the
  // push is not complete.
  absl::StatusOr<Whole> Find(const PushId& push) const;

  // Whether every part of the push is here.
  bool IsWhole(const PushId& push) const;
  // Whether the part is held already, so that Add would do nothing.
  bool Has(const StagedPart& part) const;

  // If the push is here, lets it take one of its worker's own places
  // (PushMemory).
  void Reserve(const PushId& push);

  // Drops the push, if it is here.
  void Drop(const PushId& push);
  void DropAll(const WorkerLife& from);
  // Drops every push of `step` or an earlier step, and returns which they were.
  std::vector<PushId> DropThrough(GlobalStep step);
  void Clear();

  // Has ShardTables::CountAbsent count the rows of all pushes that are here.
  void CountAbsent(const ShardTables& tables);

  int64_t bytes() const { return memory_.bytes(); }
  // Indexed by table: how many rows of the pushes here do not exist in the
  // table yet, at most.
  const std::vector<int64_t>& absent_rows() const { return absent_rows_; }
  size_t num_pushes(const TaskId& worker) const {
    return memory_.num_pushes(worker);
  }

 private:
  struct StagedPush {
    bool reserved = false;
    GlobalStep step;
    uint32_t num_parts = 0;
    std::set<uint32_t> parts;
    // Keyed by slice: the pieces of its gradient, keyed by the index of their
    // first element.
    std::map<size_t, std::map<uint64_t, GradientPiece>> pieces;
    // Keyed by table: the rows of each part, keyed by their first id.
    std::map<size_t, std::map<uint64_t, StagedRows>> rows;
    int64_t bytes = 0;
  };
  using Pushes = std::map<PushId, StagedPush>;

  absl::Status CheckNoOverlap(const StagedPush& push,
                              const StagedPart& part) const;
  // Checks that the rows of the part and of earlier parts share no id, and are
  // no more than a push may have.
  absl::Status CheckRows(const StagedPush& push, const StagedPart& part) const;
  absl::Status CheckFits(const StagedPush& push, const StagedPart& part) const;
  absl::Status CheckCovered(const StagedPush& push) const;
  // Releases everything that the parts of `push` have brought.
  void Empty(StagedPush* push);
  Pushes::iterator Drop(Pushes::iterator push);

  const std::vector<StoredSlice>* slices_ = nullptr;
  std::vector<proto::EmbeddingTable> tables_;
  Pushes pushes_;
  PushMemory memory_;
  std::vector<int64_t> absent_rows_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SHARD_STAGED_PUSHES_H_
