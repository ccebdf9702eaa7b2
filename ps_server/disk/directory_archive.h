#ifndef HOLDFAST_PS_SERVER_DISK_DIRECTORY_ARCHIVE_H_
#define HOLDFAST_PS_SERVER_DISK_DIRECTORY_ARCHIVE_H_

#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/checkpoint/directory.h"
#include "common/strand.h"
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
  // Does what was asked for; nobody is told any more.
  ~DirectoryArchive() override = default;

  void WriteJournal(const proto::Journal& journal, Reply<Done> reply) override;
  void WriteManifest(const proto::Manifest& manifest,
                     Reply<Done> reply) override;
  void ReadManifest(const proto::CheckpointName& name,
                    Reply<proto::Manifest> reply) override;
  void RemoveOthers(const proto::CheckpointName* under_way) override;

 private:
  // The journal on the disk. Errors: ABORTED when it is not ours.
  absl::StatusOr<std::optional<proto::Journal>> ReadOwnJournal();
  absl::Status ReplaceJournal(const proto::Journal& journal);
  absl::Status Remove(const std::optional<proto::CheckpointName>& under_way);

  const CheckpointDirectory directory_;
  Strand* const home_;

  // Used by the thread alone. What stands on the disk is the first or, where
  // writing it failed, perhaps the second.
  std::optional<proto::Journal> written_;
  std::optional<proto::Journal> attempted_;
  Strand thread_{"archive"};
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_DISK_DIRECTORY_ARCHIVE_H_
