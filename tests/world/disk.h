// A checkpoint directory in memory, which all processes of a world see.
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

// What is asked of it are messages (World::Call), so that schedulers decide
// when each is done, when it is answered, and which fail; what is done is done
// whole. A process that dies between leaves what it wrote without knowing it.
class Disk {
 public:
  // By generation and step.
  using Name = std::pair<uint64_t, uint64_t>;
  static Name NameOf(const proto::CheckpointName& name) {
    return {name.generation(), name.step()};
  }
  // By variable and slot, 0 for the values; then by first element.
  using Arrays = std::pair<std::string, uint32_t>;
  using Share = std::map<Arrays, std::map<uint64_t, std::vector<float>>>;

  explicit Disk(World* world);

  // The ways of one process to the disk.
  std::unique_ptr<Archive> OpenArchive();
  std::unique_ptr<ShardDisk> OpenShardDisk(uint32_t ps);

  const proto::Journal& journal() const { return journal_; }
  const proto::History& history() const { return history_; }
  void set_history(proto::History history) { history_ = std::move(history); }
  bool HasInJournal(const Name& name) const;
  // Complete, and as it was written.
  bool IsWhole(const Name& name) const;
  // Spoils a share of it, or its manifest.
  void Damage(const Name& name, bool manifest);
  bool damaged_any() const { return damaged_any_; }
  // The greatest step of a checkpoint that the journal has ever named.
  uint64_t durable_step() const { return durable_step_; }
  // What it holds of all elements. It must be complete.
  std::map<Arrays, std::vector<float>> Read(const Name& name) const;
  const proto::Manifest& manifest(const Name& name) const {
    return checkpoints_.at(name).manifest;
  }
  // Of 1000 checkpoints, those that a ps cannot read although they are whole: a
  // bad sector, or a stale view.
  void set_unreadable(int of_1000) { unreadable_of_1000_ = of_1000; }
  // No ps was ever refused it as unreadable.
  bool MayBeRead(const Name& name) const;
  // Taken off the journal as unreadable, and removed all the same.
  bool destroyed_any() const { return destroyed_any_; }
  size_t num_set_aside() const { return aside_.size(); }
  // Complete or not.
  size_t num_checkpoints() const { return checkpoints_.size(); }

  // ---- What it is asked for ----

  // What one node asks by one lane is done in order.
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
  // Of one process: which of its requests is wanted yet.
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
    // By table and bucket: rows as they are written.
    std::map<std::string, std::map<uint32_t, std::string>> rows;
    // Tables of which only what has changed is there.
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
  // The rows of one table that `to` has the buckets of. `links`: the
  // checkpoints that have them, the newest first.
  static absl::Status LoadRows(const std::vector<const Checkpoint*>& links,
                               EmbeddingTable* to);
  // A checkpoint and what it needs, the newest first. Errors: DATA_LOSS.
  absl::StatusOr<std::vector<const Checkpoint*>> LinksOf(
      const Checkpoint& checkpoint) const;
  // Has every share of `files` as they were written.
  absl::Status CheckFiles(const Checkpoint& checkpoint,
                          const proto::Manifest& manifest) const;
  // Whether ps `ps` can never read it.
  bool IsUnreadable(const Name& name, uint32_t ps);
  // Before `next` takes the journal's place.
  void NoteDropped(const proto::Journal& next);

  World* const world_;
  int unreadable_of_1000_ = 0;
  proto::Journal journal_;
  proto::History history_;
  std::map<Name, Checkpoint> checkpoints_;
  std::map<Name, Checkpoint> aside_;
  // In the folder of the best.
  std::set<Name> best_;
  // Taken off the journal from its end.
  std::set<Name> dropped_;
  bool destroyed_any_ = false;
  bool damaged_any_ = false;
  uint64_t durable_step_ = 0;
  // By checkpoint and ps: drawn when it is first read.
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
