// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_DISK_DIRECTORY_SHARD_DISK_H_
#define HOLDFAST_PS_SERVER_DISK_DIRECTORY_SHARD_DISK_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/strand.h"
#include "common/checkpoint/data_file.h"
#include "common/checkpoint/directory.h"
#include "ps_server/shard/shard_disk.h"
#include "ps_server/shard/shard_state.h"

namespace holdfast {

// The shard's access to a checkpoint directory. One thread saves and another
// loads, so that a recovery does not wait for a share that is no longer needed.
//
// Thread-compatible: called from the shard's strand.
class DirectoryShardDisk final : public ShardDisk {
 public:
  // `ps` is the index of this ps task. `home` is its shard's strand, to which
  // replies are posted; it must outlive this object.
  DirectoryShardDisk(CheckpointDirectory directory, uint32_t ps, Strand* home);
  // Aborts what is in progress, and waits for the disk, however long it takes.
  ~DirectoryShardDisk() override;

  // Aborts what is in progress; pending requests get no reply. Returns false if
  // the disk has not finished within `patience`; this object, `home` and the
  // file system must then not be destroyed.
  bool Stop(absl::Duration patience);

  void Save(const proto::CheckpointName& name, uint32_t num_ps,
            ShardSnapshot snapshot, Reply<proto::DataFile> reply) override;
  void AbandonSave() override { ++saves_; }
  proto::DiskProgress SaveProgress() const override;
  void Load(const LoadOptions& options, Reply<ShardState> reply) override;
  proto::DiskProgress LoadProgress() const override;

 private:
  // Called between chunks; an error ends the work.
  using GoOn = absl::FunctionRef<absl::Status()>;
  // The progress of one Save or Load, counted by its thread.
  struct Progress {
    std::atomic<uint64_t> done{0};
    std::atomic<uint64_t> total{0};
  };

  // Writes `snapshot`, and releases it before it returns.
  absl::StatusOr<proto::DataFile> Write(const proto::CheckpointName& name,
                                        uint32_t num_ps, ShardSnapshot snapshot,
                                        GoOn go_on, Progress* progress) const;
  absl::StatusOr<ShardState> Read(const LoadOptions& options, GoOn go_on,
                                  Progress* progress) const;
  static absl::Status WriteTable(const TableSnapshot& table, GoOn go_on,
                                 Progress* progress, DataFileWriter* writer);
  // Fills in the part of `state` that is in the checkpoint's files.
  absl::Status ReadCheckpoint(const LoadOptions& options,
                              const proto::Declaration& declaration, GoOn go_on,
                              Progress* progress, ShardState* state) const;
  absl::Status CheckDirectory(uint64_t nonce) const;
  absl::Status CheckNotStopping() const;
  static proto::DiskProgress Tell(const Progress& progress);

  const CheckpointDirectory directory_;
  const uint32_t ps_;
  Strand* const home_;
  std::atomic<bool> stopping_{false};
  // The number of calls of Save and AbandonSave, and of Load.
  std::atomic<uint64_t> saves_{0};
  std::atomic<uint64_t> loads_{0};
  // Progress of the last Save and of the last Load. Replaced only on `home`.
  std::shared_ptr<Progress> save_progress_ = std::make_shared<Progress>();
  std::shared_ptr<Progress> load_progress_ = std::make_shared<Progress>();
  Strand saving_{"disk save"};
  Strand loading_{"disk load"};
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_DISK_DIRECTORY_SHARD_DISK_H_
