#ifndef HOLDFAST_PS_SERVER_DISK_DIRECTORY_ARCHIVE_H_
#define HOLDFAST_PS_SERVER_DISK_DIRECTORY_ARCHIVE_H_

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/strand.h"
#include "common/checkpoint/directory.h"
#include "google/protobuf/repeated_field.h"
#include "proto/checkpoint.pb.h"
#include "ps_server/coordinator/archive.h"

namespace holdfast {

// The coordinator's part of a checkpoint directory, on a thread of its own.
//
// The directory's lock keeps a second coordinator out; where it does not, as on
// a file system without locks, the journal does: it is replaced, and
// checkpoints are removed, only while it is the one that was written here last.
//
// Thread-compatible: called from the coordinator's strand.
class DirectoryArchive final : public Archive {
 public:
  // `journal` as it was read; absent where there is none. The coordinator lives
  // on `home`: replies are posted there. It must outlive this object.
  DirectoryArchive(CheckpointDirectory directory,
                   std::optional<proto::Journal> journal, Strand* home);
  // Does what was asked for, however long the disk takes; nobody is told any
  // more.
  ~DirectoryArchive() override = default;

  // False when what was asked for is not done after `patience`: then this
  // object, `home` and the file system have to outlive the process.
  bool Stop(absl::Duration patience);

  void WriteJournal(const proto::Journal& journal, Reply<Done> reply) override;
  void WriteManifest(const proto::Manifest& manifest,
                     Reply<Done> reply) override;
  void ReadManifest(const proto::CheckpointName& name,
                    Reply<proto::Manifest> reply) override;
  // Errors: also ABORTED, as WriteJournal.
  void WriteHistory(proto::History history, Reply<Done> reply) override;
  void SetAside(const proto::CheckpointName& name) override;
  void KeepBest(const proto::CheckpointName& name, Reply<Done> reply) override;
  void RemoveOthersOfBest() override;
  void RemoveOthers(const proto::CheckpointName* under_way) override;

 private:
  using Checkpoints = google::protobuf::RepeatedPtrField<proto::CheckpointName>;
  using FolderNames = std::set<std::string>;

  absl::StatusOr<proto::Manifest> Read(const proto::CheckpointName& name);
  // The journal on the disk. Errors: ABORTED when it is not ours.
  absl::StatusOr<std::optional<proto::Journal>> ReadOwnJournal();
  absl::Status ReplaceJournal(const proto::Journal& journal);
  // Errors: the first of those that could not be moved.
  absl::Status MoveAside();
  // Folders that a checkpoint needs by its chain: none where its manifest is
  // damaged or not there. Errors: when the manifest cannot be read now.
  absl::StatusOr<FolderNames> NeedsOf(const CheckpointDirectory& directory,
                                      const proto::CheckpointName& name);
  // Folders of `kept`, and those that these need. Errors: as above.
  absl::StatusOr<FolderNames> WithNeeded(const CheckpointDirectory& directory,
                                         const Checkpoints& kept,
                                         const proto::Declaration& declaration);
  void ForgetOthersNeeds(const proto::Journal& journal);
  absl::Status RemoveOfBest();
  absl::Status Remove(const std::optional<proto::CheckpointName>& under_way);

  const CheckpointDirectory directory_;
  Strand* const home_;

  // Used by the thread alone. What stands on the disk is the first or, where
  // writing it failed, perhaps the second.
  std::optional<proto::Journal> written_;
  std::optional<proto::Journal> attempted_;
  // Checkpoints that are set aside, but could not be moved yet.
  std::vector<proto::CheckpointName> to_set_aside_;
  // Of checkpoints that the journal names, by folder; a manifest that is there
  // does not change.
  std::map<std::string, FolderNames> needs_;
  Strand thread_{"archive"};
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_DISK_DIRECTORY_ARCHIVE_H_
