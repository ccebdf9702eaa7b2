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

// A shard's part of a checkpoint directory. Calls do not block.
class ShardDisk {
 public:
  virtual ~ShardDisk() = default;

  // Writes the shard's share of checkpoint `name`; answered when it would
  // outlive a crash of the machine. `snapshot` is let go before that. The file
  // of an earlier attempt is replaced. Errors: the disk's; ABORTED after
  // AbandonSave.
  virtual void Save(const proto::CheckpointName& name, uint32_t num_ps,
                    ShardSnapshot snapshot, Reply<proto::DataFile> reply) = 0;
  // Nobody needs what is being saved any more: Save is answered soon.
  virtual void AbandonSave() = 0;
  // How far the last Save has come.
  virtual proto::DiskProgress SaveProgress() const = 0;

  struct LoadOptions {
    // That the checkpoint directory has to have (proto::Journal). 0: the
    // directory is not asked for.
    uint64_t directory_nonce = 0;
    // As of DenseStore::Create: the shard's own slices are made.
    proto::Declaration declaration;
    std::vector<proto::Slice> slices;
    std::vector<std::vector<float>> slots_by_optimizer;
    SharedArena* arena = nullptr;
    // As of CreateTables: the shard's own buckets of the declaration's tables
    // are made.
    uint32_t num_ps = 1;
    std::vector<int64_t> table_max_bytes;
    // Absent: first values.
    std::optional<proto::CheckpointName> checkpoint;
    // Of first values: a checkpoint's folder, where variables of the same name
    // and shape, and rows of tables of the same name and row length, are taken
    // from. Empty: none.
    std::string warm_start;
    // The slots of PlanWarmSlots() are taken from there, too.
    bool warm_start_slots = false;
  };
  // Makes a store of the slices and the tables as the checkpoint holds them,
  // whatever number of ps it was saved by, at its version. What is loaded is
  // tested against its checksums. The next Load takes the place of one that is
  // under way.
  // Errors: those of DenseStore::Create and CreateTables; DATA_LOSS when the
  // checkpoint is damaged; NOT_FOUND when it is not there; FAILED_PRECONDITION
  // when it lacks a variable, slot or table, or has it in another shape, when
  // nothing of `warm_start` fits, or when the directory is another one; ABORTED
  // when another Load has taken its place; UNAVAILABLE when the directory
  // cannot be read; UNKNOWN when it can, and a file of the checkpoint cannot.
  virtual void Load(const LoadOptions& options, Reply<ShardState> reply) = 0;
  // How far the last Load has come.
  virtual proto::DiskProgress LoadProgress() const = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SHARD_SHARD_DISK_H_
