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

// Elements of a chunk: 2 MiB of float32, a huge page. A larger chunk of slots
// makes less of a slice whole huge pages, and more to be copied at a time
// beside a checkpoint.
inline constexpr size_t kChunkElements = size_t{1} << 19;

// A range of a variable that this shard holds.
struct StoredSlice {
  proto::Variable variable;
  // Of the whole variable, in elements.
  uint64_t begin = 0;
  uint64_t size = 0;

  bool trainable() const {
    return !variable.has_trainable() || variable.trainable();
  }
  // Its steps have an optimizer, and thus slots.
  bool has_optimizer() const {
    return trainable() && !variable.has_moving_average();
  }
  size_t num_chunks() const {
    return (size + kChunkElements - 1) / kChunkElements;
  }
  // Elements of one chunk.
  size_t chunk_size(size_t chunk) const;
};

// The values of all slices after `number` steps. Never changed once published;
// held for as long as somebody has a reference.
struct StoreVersion {
  GlobalStep number;
  // By slice, by chunk. The chunks of a slice are one piece of memory, each
  // behind the one before, so that a slice can be read in place.
  std::vector<std::vector<std::shared_ptr<const float>>> slices;
};

// Values and slots at one version, held for a checkpoint. The next version's
// slots are written to other memory.
struct StoreSnapshot {
  std::vector<StoredSlice> slices;
  std::shared_ptr<const StoreVersion> version;
  // By slice, by slot, by chunk.
  std::vector<std::vector<std::vector<std::shared_ptr<const float>>>> slots;
};

// The bytes of a shard: dense slices in versions, and the optimizer's slots.
// The values of a slice lie in one piece, in shared memory where there is an
// arena; slots lie chunk by chunk, in private memory.
//
// Thread-compatible. A StoreVersion and a StoreSnapshot may be read, and let
// go, by any thread.
// Invariant: newest() is whole at all times.
class DenseStore {
 public:
  // A version in the making.
  struct Draft {
    GlobalStep number;
    // By slice, by chunk: spare memory of unspecified content for the chunks of
    // trainable slices, all in one piece; the others are those of the version
    // before.
    std::vector<std::vector<std::shared_ptr<float>>> written;
    // By slice, by slot, by chunk: the same for a slot's chunk that a snapshot
    // holds; null for one that is changed in place.
    std::vector<std::vector<std::vector<std::shared_ptr<float>>>> slots;
  };

  // A slot beside a chunk: what it is, and where what it becomes goes, which is
  // the same memory where it is changed in place.
  struct SlotPlace {
    const float* before;
    float* after;
  };

  // Makes the slices of `placed` on ps `ps`, with their first values (zeros
  // where those are given), as version 0, and slots: for variables of optimizer
  // o as many as slots_by_optimizer[o] has values, each filled with its value.
  // `arena`, which must outlive the store, gives the memory of values; of one
  // store at a time, another's is used again. Null: that is private too.
  // Errors: INVALID_ARGUMENT for a slice that does not fit its variable.
  static absl::StatusOr<std::unique_ptr<DenseStore>> Create(
      const proto::Declaration& declaration,
      const std::vector<proto::Slice>& placed, uint32_t ps,
      const std::vector<std::vector<float>>& slots_by_optimizer,
      SharedArena* arena = nullptr);

  const std::vector<StoredSlice>& slices() const { return slices_; }
  size_t num_slots(size_t slice) const { return slots_[slice].size(); }
  std::shared_ptr<const StoreVersion> newest() const { return newest_; }

  // Memory of one version's values, of the slots, and of all that was ever held
  // at a time: these, other versions and snapshots, and what else the arena
  // holds.
  int64_t value_bytes() const { return value_bytes_; }
  int64_t slot_bytes() const { return slot_bytes_; }
  int64_t held_bytes() const { return pool_.bytes(); }

  // What is declared of a variable that has a slice here, or null.
  const proto::Variable* FindVariable(absl::string_view name) const;

  // The slice that holds all of [begin, begin + size) of a variable.
  // Errors: NOT_FOUND, naming what is here.
  absl::StatusOr<size_t> Find(absl::string_view variable, uint64_t begin,
                              uint64_t size) const;

  // The newest version, with the slots as they are.
  StoreSnapshot Snapshot();

  // Whether the first values of the slice are `given`, and nobody has asked for
  // the memory to load them into.
  bool lacks_values(size_t slice) const { return lacks_values_[slice]; }

  // For loading, before the store is used: the memory of the newest version and
  // of the slots, to be overwritten; and that version's number.
  float* ValuesToLoad(size_t slice, size_t chunk);
  float* SlotToLoad(size_t slice, size_t slot, size_t chunk);
  void SetVersion(GlobalStep number);

  // The values of [begin, begin + size) of the slice's variable, where they
  // lie: one span.
  Buffer Read(const StoreVersion& version, size_t slice, uint64_t begin,
              uint64_t size) const;

  // Takes all memory that the next version needs: after it nothing can fail.
  Draft Reserve();
  // Of one chunk of a slice, by slot. All of the slots of trainable slices are
  // to be written before Publish; several threads may do so, each to others.
  std::vector<SlotPlace> slots(const Draft& draft, size_t slice,
                               size_t chunk) const;
  // Makes `draft` the newest version, whole.
  void Publish(Draft draft);
  // Makes the newest values the next version, unchanged.
  void PublishUnchanged();

 private:
  struct SlotChunk {
    std::shared_ptr<float> memory;
    // A snapshot has it, or had it: it is not changed in place any more. Not
    // asked of the reference count, which says too little: that another thread
    // has let go does not order its reads before our writes. The price is other
    // memory in vain where a checkpoint is written faster than a step is made.
    bool in_snapshot = false;
  };

  explicit DenseStore(SharedArena* arena) : pool_(arena) {}

  // Memory of a version's values of a slice, by chunk.
  std::vector<std::shared_ptr<float>> TakeValues(const StoredSlice& slice);

  std::vector<StoredSlice> slices_;
  // Indices into slices_, by their first elements.
  absl::flat_hash_map<std::string, std::map<uint64_t, size_t>> by_variable_;
  ChunkPool pool_;
  int64_t value_bytes_ = 0;
  int64_t slot_bytes_ = 0;
  std::shared_ptr<const StoreVersion> newest_;
  // By slice, by slot, by chunk.
  std::vector<std::vector<std::vector<SlotChunk>>> slots_;
  // By slice.
  std::vector<bool> lacks_values_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_STORE_DENSE_STORE_H_
