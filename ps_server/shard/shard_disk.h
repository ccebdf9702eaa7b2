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

  // Writes the shard's share of checkpoint `name`, in place of the file of an
  // earlier attempt. The reply comes once the file would survive a crash of the
  // machine; `snapshot` is released before that. Errors: those of the disk;
  // ABORTED after AbandonSave.
  virtual void Save(const proto::CheckpointName& name, uint32_t num_ps,
                    ShardSnapshot snapshot, Reply<proto::DataFile> reply) = 0;
  // Gives up the Save in progress, if there is one, which is no longer needed.
  // The Save is answered soon.
  virtual void AbandonSave() = 0;
  // The progress of the last Save.
  virtual proto::DiskProgress SaveProgress() const = 0;

  struct LoadOptions {
    // The nonce that the checkpoint directory must have (proto::Journal). 0:
    // the nonce is not checked.
    uint64_t directory_nonce = 0;
    // The arguments of DenseStore::Create, which makes the shard's own slices.
    proto::Declaration declaration;
    std::vector<proto::Slice> slices;
    std::vector<std::vector<float>> slots_by_optimizer;
    SharedArena* arena = nullptr;
    // The arguments of CreateTables, which makes the shard's own buckets of the
    // declaration's tables.
    uint32_t num_ps = 1;
    std::vector<int64_t> table_max_bytes;
    // The checkpoint to load. If absent, variables have their first values, and
    // tables have no rows.
    std::optional<proto::CheckpointName> checkpoint;
    // Used only if `checkpoint` is absent: the folder of a checkpoint, from
    // which variables of the same name and shape, and rows of tables of the
    // same name and row length, are taken. Empty if there is none.
    std::string warm_start;
    // Whether the slots that PlanWarmSlots() names are also taken from
    // `warm_start`.
    bool warm_start_slots = false;
  };
  // Makes a store of the shard's slices, and its tables, with the contents and
  // the version of the checkpoint, however many ps saved it. Checks loaded data
  // against checksums. If another Load is in progress, this one replaces it.
  // Errors: those of DenseStore::Create and CreateTables; DATA_LOSS when the
  // checkpoint is damaged; NOT_FOUND when it does not exist;
  // FAILED_PRECONDITION when the checkpoint lacks a variable, slot or table, or
  // has it in another shape, when nothing in `warm_start` fits, or when the
  // directory is the wrong one; ABORTED when another Load has replaced this
  // one; UNAVAILABLE when the directory cannot be read; UNKNOWN when it can be
  // read but a file of the checkpoint cannot.
  virtual void Load(const LoadOptions& options, Reply<ShardState> reply) = 0;
  // The progress of the last Load.
  virtual proto::DiskProgress LoadProgress() const = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SHARD_SHARD_DISK_H_
