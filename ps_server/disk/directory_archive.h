// SPDX-License-Identifier: Apache-2.0
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

// The coordinator's access to a checkpoint directory, on a thread of its own.
//
// The directory's lock keeps a second coordinator out. On a file system without
// locks, the journal protects the directory instead: the journal is replaced,
// and checkpoints are removed, only while the journal on disk is the one that
// this object wrote last.
//
// Thread-compatible: called from the coordinator's strand.
class DirectoryArchive final : public Archive {
 public:
  // `journal` is the journal as it was read, or nullopt if there is none.
  // `home` is the coordinator's strand, to which replies are posted; it must
  // outlive this object.
  DirectoryArchive(CheckpointDirectory directory,
                   std::optional<proto::Journal> journal, Strand* home);
  // Finishes the requests made so far, however long the disk takes, without
  // replying to them.
  ~DirectoryArchive() override = default;

  // Waits until the requests made so far are done. Returns false if they are
  // not done within `patience`; this object, `home` and the file system must
  // then not be destroyed.
  bool Stop(absl::Duration patience);

  void WriteJournal(const proto::Journal& journal, Reply<Done> reply) override;
  void WriteManifest(const proto::Manifest& manifest,
                     Reply<Done> reply) override;
  void ReadManifest(const proto::CheckpointName& name,
                    Reply<proto::Manifest> reply) override;
  // Errors: also ABORTED, if the journal on disk is not this object's.
  void WriteHistory(proto::History history, Reply<Done> reply) override;
  void SetAside(const proto::CheckpointName& name) override;
  void KeepBest(const proto::CheckpointName& name, Reply<Done> reply) override;
  void RemoveOthersOfBest() override;
  void RemoveOthers(const proto::CheckpointName* under_way) override;

 private:
  using Checkpoints = google::protobuf::RepeatedPtrField<proto::CheckpointName>;
  using FolderNames = std::set<std::string>;

  absl::StatusOr<proto::Manifest> Read(const proto::CheckpointName& name);
  // Reads the journal on the disk. Errors: ABORTED if this object has not
  // written it.
  absl::StatusOr<std::optional<proto::Journal>> ReadOwnJournal();
  absl::Status ReplaceJournal(const proto::Journal& journal);
  // Errors: the error of the first checkpoint that could not be moved.
  absl::Status MoveAside();
  // The names of the folders that a checkpoint's chain needs; none if the
  // checkpoint's manifest is damaged or missing. Returns an error if the
  // manifest cannot be read at the moment.
  absl::StatusOr<FolderNames> NeedsOf(const CheckpointDirectory& directory,
                                      const proto::CheckpointName& name);
  // The names of the folders of `kept`, and of the folders that they need.
  // Errors: as NeedsOf.
  absl::StatusOr<FolderNames> WithNeeded(const CheckpointDirectory& directory,
                                         const Checkpoints& kept,
                                         const proto::Declaration& declaration);
  void ForgetOthersNeeds(const proto::Journal& journal);
  absl::Status RemoveOfBest();
  absl::Status Remove(const std::optional<proto::CheckpointName>& under_way);

  const CheckpointDirectory directory_;
  Strand* const home_;

  // The journal that was last written, and the one whose writing has failed, if
  // any: the disk may have either. Used only by the thread.
  std::optional<proto::Journal> written_;
  std::optional<proto::Journal> attempted_;
  // Checkpoints to be set aside that could not be moved yet.
  std::vector<proto::CheckpointName> to_set_aside_;
  // The results of NeedsOf for checkpoints that the journal names, by folder.
  // They stay true, because an existing manifest does not change.
  std::map<std::string, FolderNames> needs_;
  Strand thread_{"archive"};
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_DISK_DIRECTORY_ARCHIVE_H_
