// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_COORDINATOR_ARCHIVE_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_ARCHIVE_H_

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/checkpoint.pb.h"
#include "ps_server/reply/reply.h"

namespace holdfast {

// The time after which a failed disk operation is retried.
inline constexpr absl::Duration kDiskRetryAfter = absl::Seconds(1);

// Describes the checkpoint, for users.
inline std::string ToString(const proto::CheckpointName& name) {
  return absl::StrCat("step ", name.step(), " (generation ", name.generation(),
                      ")");
}

// The coordinator's access to a checkpoint directory. Calls do not block; they
// are executed and answered in the order in which they are made.
class Archive {
 public:
  virtual ~Archive() = default;

  // Replaces the journal. The reply comes once the new journal would survive a
  // crash of the machine. Errors: those of the disk, after which either the old
  // or the new journal is on disk; ABORTED if another process has written a
  // journal since this one last did.
  virtual void WriteJournal(const proto::Journal& journal,
                            Reply<Done> reply) = 0;

  // Writes the manifest, which completes the checkpoint that it names. The
  // reply and the errors are as for WriteJournal.
  virtual void WriteManifest(const proto::Manifest& manifest,
                             Reply<Done> reply) = 0;

  // Reads the manifest of checkpoint `name`. Errors: NOT_FOUND if there is
  // none; DATA_LOSS when the manifest is damaged, or a file that it names is
  // missing or has the wrong size; UNAVAILABLE when the directory cannot be
  // read; UNKNOWN when the directory can be read but the checkpoint cannot.
  virtual void ReadManifest(const proto::CheckpointName& name,
                            Reply<proto::Manifest> reply) = 0;

  // Replaces the history of the job. The reply comes once the new history would
  // survive a crash of the machine.
  virtual void WriteHistory(proto::History history, Reply<Done> reply) = 0;

  // Moves a checkpoint that counts as damaged out of the way. It is kept,
  // because it may be intact even if this machine cannot read it: RemoveOthers
  // does not remove it from then on. Failures are logged.
  virtual void SetAside(const proto::CheckpointName& name) = 0;

  // Links a checkpoint into the folder of the best, where it stays until the
  // journal no longer names it among the best. The reply comes once the link
  // would survive a crash of the machine; it is OK also if the link exists
  // already. Errors: NOT_FOUND if the checkpoint does not exist; those of the
  // disk.
  virtual void KeepBest(const proto::CheckpointName& name,
                        Reply<Done> reply) = 0;

  // Removes from the folder of the best every checkpoint that the journal last
  // written does not name among the best. Failures are logged.
  virtual void RemoveOthersOfBest() = 0;

  // Removes every checkpoint, complete or not, that the journal last written
  // does not name, except `*under_way`, which is being taken; `under_way` is
  // null if none is. Failures are logged.
  virtual void RemoveOthers(const proto::CheckpointName* under_way) = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_ARCHIVE_H_
