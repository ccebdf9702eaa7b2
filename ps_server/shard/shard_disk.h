#ifndef HOLDFAST_PS_SERVER_SHARD_SHARD_DISK_H_
#define HOLDFAST_PS_SERVER_SHARD_SHARD_DISK_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/reply.h"
#include "proto/checkpoint.pb.h"
#include "proto/cluster.pb.h"
#include "ps_server/store/dense_store.h"

namespace holdfast {

// A shard's part of a checkpoint directory. Calls do not block.
class ShardDisk {
 public:
  virtual ~ShardDisk() = default;

  // Of the checkpoint directory; 0 where there is none.
  virtual uint64_t directory_nonce() = 0;

  // Writes the shard's share of checkpoint `name`; answered when it would
  // outlive a crash of the machine. `snapshot` is let go before that. The file
  // of an earlier attempt is replaced.
  virtual void Save(const proto::CheckpointName& name, uint32_t num_ps,
                    StoreSnapshot snapshot, Reply<proto::DataFile> reply) = 0;

  struct LoadOptions {
    // As of DenseStore::Create.
    proto::Declaration declaration;
    std::vector<proto::Slice> slices;
    std::vector<std::vector<float>> slots_by_optimizer;
    // Absent: first values.
    std::optional<proto::CheckpointName> checkpoint;
    // Of first values: a checkpoint's folder, where variables of the same name
    // and shape are taken from. Empty: none.
    std::string warm_start;
  };
  // Makes a store of the slices as the checkpoint holds them, whatever number
  // of ps it was saved by, at its version. What is loaded is tested against
  // its checksums.
  // Errors: DATA_LOSS when it is damaged; NOT_FOUND when it is not there;
  // FAILED_PRECONDITION when it lacks a variable or slot, or has it in another
  // shape.
  virtual void Load(const LoadOptions& options,
                    Reply<std::unique_ptr<DenseStore>> reply) = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SHARD_SHARD_DISK_H_
