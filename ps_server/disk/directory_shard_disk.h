#ifndef HOLDFAST_PS_SERVER_DISK_DIRECTORY_SHARD_DISK_H_
#define HOLDFAST_PS_SERVER_DISK_DIRECTORY_SHARD_DISK_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/checkpoint/directory.h"
#include "common/strand.h"
#include "ps_server/shard/shard_disk.h"

namespace holdfast {

// The shard's part of a checkpoint directory. One thread saves and one loads,
// so that a recovery does not wait for a share that nobody needs any more.
//
// Thread-compatible: called from the shard's strand.
class DirectoryShardDisk final : public ShardDisk {
 public:
  // Of ps task `ps`, whose shard lives on `home`: replies are posted there. It
  // must outlive this object.
  DirectoryShardDisk(CheckpointDirectory directory, uint32_t ps, Strand* home);
  // Breaks off what is under way; who has no reply yet gets none.
  ~DirectoryShardDisk() override;

  void Save(const proto::CheckpointName& name, uint32_t num_ps,
            StoreSnapshot snapshot, Reply<proto::DataFile> reply) override;
  void Load(const LoadOptions& options,
            Reply<std::unique_ptr<DenseStore>> reply) override;

 private:
  // Says whether to go on; asked between chunks.
  using GoOn = absl::FunctionRef<absl::Status()>;

  // Lets `snapshot` go as it returns.
  absl::StatusOr<proto::DataFile> Write(const proto::CheckpointName& name,
                                        uint32_t num_ps,
                                        StoreSnapshot snapshot) const;
  absl::StatusOr<std::unique_ptr<DenseStore>> Read(const LoadOptions& options,
                                                   GoOn go_on) const;
  absl::Status CheckDirectory(uint64_t nonce) const;
  absl::Status CheckNotStopping() const;

  const CheckpointDirectory directory_;
  const uint32_t ps_;
  Strand* const home_;
  std::atomic<bool> stopping_{false};
  // Counts calls of Load.
  std::atomic<uint64_t> loads_{0};
  Strand saving_{"disk save"};
  Strand loading_{"disk load"};
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_DISK_DIRECTORY_SHARD_DISK_H_
