// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_STORE_DENSE_STORE_H_
#define HOLDFAST_PS_SERVER_STORE_DENSE_STORE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/job/ids.h"
#include "common/shared_memory/arena.h"
#include "common/tensor/buffer.h"
#include "proto/cluster.pb.h"
#include "ps_server/store/chunk_pool.h"

namespace holdfast {

// The number of elements of a chunk: 2 MiB of float32, a huge page. With larger
// chunks of slots, less of a slice would be in whole huge pages, and more would
// be copied at a time while a checkpoint is written.
inline constexpr size_t kChunkElements = size_t{1} << 19;

// A slice of a variable that this shard holds.
struct StoredSlice {
  proto::Variable variable;
  // The index in the whole variable of the slice's first element, and the
  // slice's number of elements.
  uint64_t begin = 0;
  uint64_t size = 0;

  bool trainable() const {
    return !variable.has_trainable() || variable.trainable();
  }
  // Whether an optimizer updates the slice, so that the slice has slots.
  bool has_optimizer() const {
    return trainable() && !variable.has_moving_average();
  }
  size_t num_chunks() const {
    return (size + kChunkElements - 1) / kChunkElements;
  }
  // The number of elements of the chunk with index `chunk`.
  size_t chunk_size(size_t chunk) const;
};

// The values of all slices after `number` steps. Never changed once published;
// kept for as long as there is a reference to it.
struct StoreVersion {
  GlobalStep number;
  // Indexed by slice and chunk. The chunks of a slice are contiguous in memory,
  // so that a slice can be read in place.
  std::vector<std::vector<std::shared_ptr<const float>>> slices;
};

// The values and slots at one version, held for a checkpoint. While it is held,
// the next version's slots are written to other memory.
struct StoreSnapshot {
  std::vector<StoredSlice> slices;
  std::shared_ptr<const StoreVersion> version;
  // Indexed by slice, slot and chunk.
  std::vector<std::vector<std::vector<std::shared_ptr<const float>>>> slots;
};

// The bytes of a shard: dense slices in versions, and the optimizer's slots.
// The values of a slice are contiguous, in shared memory if there is an arena;
// slots are in separate chunks, in private memory.
//
// Thread-compatible. A StoreVersion and a StoreSnapshot may be read and
// released by any thread. Invariant: newest() is complete at all times.
class DenseStore {
 public:
  // A version that is being made.
  struct Draft {
    GlobalStep number;
    // Indexed by slice and chunk: spare memory of unspecified content for the
    // chunks of trainable slices, contiguous for each slice; the other slices
    // have the chunks of the previous version.
    std::vector<std::vector<std::shared_ptr<float>>> written;
    // Indexed by slice, slot and chunk: spare memory of unspecified content for
    // each slot's chunk that a snapshot holds; null for a chunk that is changed
    // in place.
    std::vector<std::vector<std::vector<std::shared_ptr<float>>>> slots;
  };

  // A chunk of a slot: its content, and the memory to which its next content is
  // written, which is the same if the chunk is changed in place.
  struct SlotPlace {
    const float* before;
    float* after;
  };

  // Makes a store with the slices of `placed` that are on ps `ps`, at version
  // 0. Their values are the first values that `declaration` defines, or zeros
  // if those are `given`. A variable of optimizer o has one slot for each
  // number in slots_by_optimizer[o], with which the slot is filled. `arena`,
  // which must outlive the store, provides the memory of values. An arena
  // serves one store at a time; the next store reuses the memory. If `arena` is
  // null, values are in private memory, too.
  // Errors: INVALID_ARGUMENT for a slice that does not fit its variable.
  static absl::StatusOr<std::unique_ptr<DenseStore>> Create(
      const proto::Declaration& declaration,
      const std::vector<proto::Slice>& placed, uint32_t ps,
      const std::vector<std::vector<float>>& slots_by_optimizer,
      SharedArena* arena = nullptr);

  const std::vector<StoredSlice>& slices() const { return slices_; }
  size_t num_slots(size_t slice) const { return slots_[slice].size(); }
  std::shared_ptr<const StoreVersion> newest() const { return newest_; }

  // The numbers of bytes of one version's values; of the slots; and of all the
  // memory that the store has taken, which is the most that was ever held at a
  // time, with other versions and snapshots, and with whatever else the arena
  // holds.
  int64_t value_bytes() const { return value_bytes_; }
  int64_t slot_bytes() const { return slot_bytes_; }
  int64_t held_bytes() const { return pool_.bytes(); }

  // The declaration of a variable that has a slice here, or null.
  const proto::Variable* FindVariable(absl::string_view name) const;

  // The index of the slice that holds all of [begin, begin + size) of a
  // variable.
  // Errors: NOT_FOUND, naming the variable.
  absl::StatusOr<size_t> Find(absl::string_view variable, uint64_t begin,
                              uint64_t size) const;

  // Makes a snapshot of the newest version and its slots.
  StoreSnapshot Snapshot();

  // Whether the first values of the slice are `given`, and ValuesToLoad has not
  // been called for it.
  bool lacks_values(size_t slice) const { return lacks_values_[slice]; }

  // For loading, before the store is used: ValuesToLoad and SlotToLoad return
  // the memory of the newest version and of the slots, which the caller
  // overwrites; SetVersion sets that version's number.
  float* ValuesToLoad(size_t slice, size_t chunk);
  float* SlotToLoad(size_t slice, size_t slot, size_t chunk);
  void SetVersion(GlobalStep number);

  // The values of [begin, begin + size) of the slice's variable, in place, as
  // one span.
  Buffer Read(const StoreVersion& version, size_t slice, uint64_t begin,
              uint64_t size) const;

  // Takes all memory that the next version needs, so that making the version
  // cannot fail.
  Draft Reserve();
  // The slots of one chunk of a slice, indexed by slot. All slots of trainable
  // slices must be written before Publish; several threads may do so, each for
  // different chunks.
  std::vector<SlotPlace> slots(const Draft& draft, size_t slice,
                               size_t chunk) const;
  // Makes `draft`, which must be complete, the newest version.
  void Publish(Draft draft);
  // Makes a next version that has the newest values, unchanged.
  void PublishUnchanged();

 private:
  struct SlotChunk {
    std::shared_ptr<float> memory;
    // Whether a snapshot has or had this chunk, so that it must not be changed
    // in place. The reference count would not do: that another thread has
    // released its reference does not order that thread's reads before our
    // writes. The price is an unneeded copy if a checkpoint is written before
    // the next step is made.
    bool in_snapshot = false;
  };

  explicit DenseStore(SharedArena* arena) : pool_(arena) {}

  // Takes memory for a version's values of a slice; indexed by chunk.
  std::vector<std::shared_ptr<float>> TakeValues(const StoredSlice& slice);

  std::vector<StoredSlice> slices_;
  // For each variable: the indices into slices_ of its slices, by the index of
  // their first element.
  absl::flat_hash_map<std::string, std::map<uint64_t, size_t>> by_variable_;
  ChunkPool pool_;
  int64_t value_bytes_ = 0;
  int64_t slot_bytes_ = 0;
  std::shared_ptr<const StoreVersion> newest_;
  // Indexed by slice, slot and chunk.
  std::vector<std::vector<std::vector<SlotChunk>>> slots_;
  // Indexed by slice.
  std::vector<bool> lacks_values_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_STORE_DENSE_STORE_H_
