// SPDX-License-Identifier: Apache-2.0

// A checkpoint directory in memory that all processes of a world share.
#ifndef HOLDFAST_TESTS_WORLD_DISK_H_
#define HOLDFAST_TESTS_WORLD_DISK_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "proto/checkpoint.pb.h"
#include "ps_server/coordinator/archive.h"
#include "ps_server/reply/reply.h"
#include "ps_server/shard/shard_disk.h"
#include "tests/world/message.h"

namespace holdfast::sim {

// Requests to the disk are messages (World::Call), so that schedulers decide
// when each one is executed, when it is answered, and which ones fail. A
// request is executed as a whole. A process that dies before it hears the
// answer leaves behind what it wrote without knowing it.
class Disk {
 public:
  // A checkpoint, named by its generation and step.
  using Name = std::pair<uint64_t, uint64_t>;
  static Name NameOf(const proto::CheckpointName& name) {
    return {name.generation(), name.step()};
  }
  // Variable and slot; slot 0 is the values. A Share maps it to arrays by first
  // element.
  using Arrays = std::pair<std::string, uint32_t>;
  using Share = std::map<Arrays, std::map<uint64_t, std::vector<float>>>;

  explicit Disk(World* world);

  // One process's access to the disk.
  std::unique_ptr<Archive> OpenArchive();
  std::unique_ptr<ShardDisk> OpenShardDisk(uint32_t ps);

  const proto::Journal& journal() const { return journal_; }
  const proto::History& history() const { return history_; }
  void set_history(proto::History history) { history_ = std::move(history); }
  bool HasInJournal(const Name& name) const;
  // Whether the checkpoint is complete and undamaged.
  bool IsWhole(const Name& name) const;
  // Damages a share of the checkpoint, or its manifest.
  void Damage(const Name& name, bool manifest);
  bool damaged_any() const { return damaged_any_; }
  // The greatest step of a checkpoint that the journal has ever named.
  uint64_t durable_step() const { return durable_step_; }
  // The values of all elements in a checkpoint, which must be complete.
  std::map<Arrays, std::vector<float>> Read(const Name& name) const;
  const proto::Manifest& manifest(const Name& name) const {
    return checkpoints_.at(name).manifest;
  }
  // How many of 1000 intact checkpoints a ps cannot read, as with a bad sector
  // or a stale view.
  void set_unreadable(int of_1000) { unreadable_of_1000_ = of_1000; }
  // True if no ps was ever refused the checkpoint as unreadable.
  bool MayBeRead(const Name& name) const;
  // Whether a checkpoint that was dropped from the journal as unreadable was
  // removed nevertheless.
  bool destroyed_any() const { return destroyed_any_; }
  size_t num_set_aside() const { return aside_.size(); }
  // The number of checkpoints, complete or not.
  size_t num_checkpoints() const { return checkpoints_.size(); }

  // ---- Requests ----

  // The requests of a node in one lane are executed in order.
  static constexpr int kArchiveLane = 0;
  static constexpr int kSaveLane = 1;
  static constexpr int kLoadLane = 2;
  static constexpr int kNumLanes = 3;

  struct WriteJournal {
    proto::Journal journal;
  };
  struct WriteManifest {
    proto::Manifest manifest;
  };
  struct ReadManifest {
    proto::CheckpointName name;
  };
  struct SetAside {
    proto::CheckpointName name;
  };
  struct KeepBest {
    proto::CheckpointName name;
  };
  struct RemoveOthersOfBest {};
  struct RemoveOthers {
    std::optional<Name> spared;
  };
  // The requests of one process that are still wanted.
  struct Wanted {
    uint64_t save = 0;
    uint64_t load = 0;
  };
  struct SaveShare {
    Name name;
    uint32_t ps = 0;
    std::shared_ptr<ShardSnapshot> snapshot;
    uint64_t number = 0;
    std::shared_ptr<const Wanted> wanted;
  };
  struct LoadShare {
    ShardDisk::LoadOptions options;
    uint32_t ps = 0;
    uint64_t number = 0;
    std::shared_ptr<const Wanted> wanted;
  };
  void Do(const WriteJournal& request, Reply<Done> reply);
  void Do(const WriteManifest& request, Reply<Done> reply);
  void Do(const ReadManifest& request, Reply<proto::Manifest> reply);
  void Do(const SetAside& request, Reply<Done> reply);
  void Do(const KeepBest& request, Reply<Done> reply);
  void Do(const RemoveOthersOfBest& request, Reply<Done> reply);
  void Do(const RemoveOthers& request, Reply<Done> reply);
  void Do(const SaveShare& request, Reply<proto::DataFile> reply);
  void Do(const LoadShare& request, Reply<ShardState> reply);

 private:
  class OpenedArchive;
  class OpenedShardDisk;
  struct File {
    proto::DataFile file;
    Share share;
    // Rows in the format in which they are written, by table and bucket.
    std::map<std::string, std::map<uint32_t, std::string>> rows;
    // Tables of which only the changed rows are present.
    std::set<std::string> changes;
    bool damaged = false;
  };
  struct Checkpoint {
    bool complete = false;
    proto::Manifest manifest;
    bool manifest_damaged = false;
    std::map<uint32_t, File> files;
  };

  void Write(const std::function<void()>& write, Reply<Done> reply);
  absl::StatusOr<ShardState> Load(const ShardDisk::LoadOptions& options,
                                  uint32_t ps);
  proto::DataFile Save(const Name& name, uint32_t ps,
                       const ShardSnapshot& snapshot);
  // Reads the rows of one table in the buckets that `to` has. `links`: the
  // checkpoints that have them, newest first.
  static absl::Status LoadRows(const std::vector<const Checkpoint*>& links,
                               EmbeddingTable* to);
  // The checkpoint and those it depends on, newest first. Errors: DATA_LOSS.
  absl::StatusOr<std::vector<const Checkpoint*>> LinksOf(
      const Checkpoint& checkpoint) const;
  // OK if `checkpoint` has all shares that `manifest` names, as they were
  // written. Errors: DATA_LOSS.
  absl::Status CheckFiles(const Checkpoint& checkpoint,
                          const proto::Manifest& manifest) const;
  // Whether the checkpoint is permanently unreadable for this ps.
  bool IsUnreadable(const Name& name, uint32_t ps);
  // Called before `next` replaces the journal: notes its last checkpoint if
  // `next` drops it.
  void NoteDropped(const proto::Journal& next);

  World* const world_;
  int unreadable_of_1000_ = 0;
  proto::Journal journal_;
  proto::History history_;
  std::map<Name, Checkpoint> checkpoints_;
  std::map<Name, Checkpoint> aside_;
  // Checkpoints in the folder of the best ones.
  std::set<Name> best_;
  // Checkpoints that were dropped from the end of the journal.
  std::set<Name> dropped_;
  bool destroyed_any_ = false;
  bool damaged_any_ = false;
  uint64_t durable_step_ = 0;
  // Whether a ps cannot read a checkpoint; drawn when it first reads it.
  std::map<std::pair<Name, uint32_t>, bool> unreadable_;
};

namespace internal {
template <typename Request, typename R, int lane>
struct DiskMethod {
  using Server = Disk;
  using Response = R;
  static constexpr int kLane = lane;
  static void Serve(Disk* disk, const Request& request, Reply<R> reply) {
    disk->Do(request, std::move(reply));
  }
};
}  // namespace internal

template <>
struct Rpc<Disk::WriteJournal>
    : internal::DiskMethod<Disk::WriteJournal, Done, Disk::kArchiveLane> {
  static constexpr char kName[] = "WriteJournal";
};
template <>
struct Rpc<Disk::WriteManifest>
    : internal::DiskMethod<Disk::WriteManifest, Done, Disk::kArchiveLane> {
  static constexpr char kName[] = "WriteManifest";
};
template <>
struct Rpc<Disk::ReadManifest>
    : internal::DiskMethod<Disk::ReadManifest, proto::Manifest,
                           Disk::kArchiveLane> {
  static constexpr char kName[] = "ReadManifest";
};
template <>
struct Rpc<Disk::SetAside>
    : internal::DiskMethod<Disk::SetAside, Done, Disk::kArchiveLane> {
  static constexpr char kName[] = "SetAside";
};
template <>
struct Rpc<Disk::KeepBest>
    : internal::DiskMethod<Disk::KeepBest, Done, Disk::kArchiveLane> {
  static constexpr char kName[] = "KeepBest";
};
template <>
struct Rpc<Disk::RemoveOthersOfBest>
    : internal::DiskMethod<Disk::RemoveOthersOfBest, Done, Disk::kArchiveLane> {
  static constexpr char kName[] = "RemoveOthersOfBest";
};
template <>
struct Rpc<Disk::RemoveOthers>
    : internal::DiskMethod<Disk::RemoveOthers, Done, Disk::kArchiveLane> {
  static constexpr char kName[] = "RemoveOthers";
};
template <>
struct Rpc<Disk::SaveShare>
    : internal::DiskMethod<Disk::SaveShare, proto::DataFile, Disk::kSaveLane> {
  static constexpr char kName[] = "SaveShare";
};
template <>
struct Rpc<Disk::LoadShare>
    : internal::DiskMethod<Disk::LoadShare, ShardState, Disk::kLoadLane> {
  static constexpr char kName[] = "LoadShare";
};

}  // namespace holdfast::sim

#endif  // HOLDFAST_TESTS_WORLD_DISK_H_
