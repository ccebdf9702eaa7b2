// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_SHARD_SHARD_DISK_H_
#define HOLDFAST_PS_SERVER_SHARD_SHARD_DISK_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/shared_memory/arena.h"
#include "proto/checkpoint.pb.h"
#include "proto/cluster.pb.h"
#include "ps_server/reply/reply.h"
#include "ps_server/shard/shard_state.h"

namespace holdfast {

// A shard's access to a checkpoint directory. Calls do not block.
class ShardDisk {
 public:
  virtual ~ShardDisk() = default;

  // Writes the shard's share of checkpoint `name`; answered when it would
  // survive a crash of the machine. `snapshot` is released before that. The
  // file of an earlier attempt is replaced. Errors: the disk's; ABORTED after
  // AbandonSave.
  virtual void Save(const proto::CheckpointName& name, uint32_t num_ps,
                    ShardSnapshot snapshot, Reply<proto::DataFile> reply) = 0;
  // What is being saved is no longer needed: Save is answered soon.
  virtual void AbandonSave() = 0;
  // The progress of the last Save.
  virtual proto::DiskProgress SaveProgress() const = 0;

  struct LoadOptions {
    // The nonce that the checkpoint directory must have (proto::Journal). 0: it
    // is not checked.
    uint64_t directory_nonce = 0;
    // As for DenseStore::Create: the shard's own slices are made.
    proto::Declaration declaration;
    std::vector<proto::Slice> slices;
    std::vector<std::vector<float>> slots_by_optimizer;
    SharedArena* arena = nullptr;
    // As for CreateTables: the shard's own buckets of the declaration's tables
    // are made.
    uint32_t num_ps = 1;
    std::vector<int64_t> table_max_bytes;
    // Absent: first values.
    std::optional<proto::CheckpointName> checkpoint;
    // For first values: a checkpoint's folder, from which variables of the same
    // name and shape, and rows of tables of the same name and row length, are
    // taken. Empty: none.
    std::string warm_start;
    // Whether the slots of PlanWarmSlots() are taken from there as well.
    bool warm_start_slots = false;
  };
  // Makes a store of the slices, and the tables, as the checkpoint has them, at
  // its version, however many ps saved it. Loaded data is checked against its
  // checksums. A Load replaces one that is in progress.
  // Errors: those of DenseStore::Create and CreateTables; DATA_LOSS when the
  // checkpoint is damaged; NOT_FOUND when it does not exist;
  // FAILED_PRECONDITION when it lacks a variable, slot or table, or has it in
  // another shape, when nothing in `warm_start` fits, or when the directory is
  // the wrong one; ABORTED when another Load has replaced this one; UNAVAILABLE
  // when the directory cannot be read; UNKNOWN when it can be read but a file
  // of the checkpoint cannot.
  virtual void Load(const LoadOptions& options, Reply<ShardState> reply) = 0;
  // The progress of the last Load.
  virtual proto::DiskProgress LoadProgress() const = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SHARD_SHARD_DISK_H_
