// A checkpoint directory in memory, which all processes of a schedule see.
#ifndef HOLDFAST_TESTS_SIMULATION_SIMULATED_DISK_H_
#define HOLDFAST_TESTS_SIMULATION_SIMULATED_DISK_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "proto/checkpoint.pb.h"
#include "ps_server/coordinator/archive.h"
#include "ps_server/shard/shard_disk.h"
#include "tests/simulation/scheduler.h"

namespace holdfast {

// What is written takes a while, and its answer another; a process that dies
// between leaves what it wrote without knowing it. Some calls fail, and some
// of those have done their work all the same.
class SimulatedDisk {
 public:
  struct Options {
    // Of 1000 calls.
    int failing = 0;
    // Of 1000 checkpoints, those that a ps cannot read although they are whole:
    // a bad sector, or a stale view.
    int unreadable = 0;
    // For a share to be written, at most.
    absl::Duration longest_write = absl::Seconds(4);
  };

  // By generation and step.
  using Name = std::pair<uint64_t, uint64_t>;
  static Name NameOf(const proto::CheckpointName& name) {
    return {name.generation(), name.step()};
  }
  // By variable and slot, 0 for the values; then by first element.
  using Arrays = std::pair<std::string, uint32_t>;
  using Share = std::map<Arrays, std::map<uint64_t, std::vector<float>>>;

  SimulatedDisk(Scheduler* scheduler, const Options& options);

  // The ways of one process to the disk: what it has under way ends with them.
  std::unique_ptr<Archive> OpenArchive();
  std::unique_ptr<ShardDisk> OpenShardDisk(uint32_t ps);

  const proto::Journal& journal() const { return journal_; }
  // Complete, and as it was written.
  bool IsWhole(const Name& name) const;
  // Spoils a share of it, or its manifest.
  void Damage(const Name& name, bool manifest);
  // What it holds of all elements. It must be complete.
  std::map<Arrays, std::vector<float>> Read(const Name& name) const;
  const proto::Manifest& manifest(const Name& name) const {
    return checkpoints_.at(name).manifest;
  }
  // No ps was ever refused it as unreadable.
  bool MayBeRead(const Name& name) const;
  // Taken off the journal as unreadable, and removed all the same.
  bool destroyed_any() const { return destroyed_any_; }
  // As it was, but for its name.
  bool IsSetAside(const Name& name) const { return aside_.count(name) > 0; }
  size_t num_set_aside() const { return aside_.size(); }
  // Complete or not.
  size_t num_checkpoints() const { return checkpoints_.size(); }

  // Called when the thing is on the disk.
  std::function<void(const proto::Journal&)> on_journal;
  std::function<void(const proto::Manifest&)> on_manifest;

 private:
  class OpenedArchive;
  class OpenedShardDisk;
  struct File {
    proto::DataFile file;
    Share share;
    bool damaged = false;
  };
  struct Checkpoint {
    bool complete = false;
    proto::Manifest manifest;
    bool manifest_damaged = false;
    std::map<uint32_t, File> files;
  };

  // Has every share of `files` as they were written.
  absl::Status CheckFiles(const Checkpoint& checkpoint,
                          const proto::Manifest& manifest) const;
  // OK, mostly.
  absl::Status ReadMishap();
  // Whether ps `ps` can never read it.
  bool IsUnreadable(const Name& name, uint32_t ps);
  // Before `next` takes the journal's place.
  void NoteDropped(const proto::Journal& next);
  absl::Status WriteMishap();

  Scheduler* const scheduler_;
  const Options options_;
  proto::Journal journal_;
  std::map<Name, Checkpoint> checkpoints_;
  std::map<Name, Checkpoint> aside_;
  // Taken off the journal from its end.
  std::set<Name> dropped_;
  bool destroyed_any_ = false;
  // By checkpoint and ps: drawn when it is first read.
  std::map<std::pair<Name, uint32_t>, bool> unreadable_;
};

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_SIMULATION_SIMULATED_DISK_H_
