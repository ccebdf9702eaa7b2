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

// The checkpoint in words for users.
inline std::string ToString(const proto::CheckpointName& name) {
  return absl::StrCat("step ", name.step(), " (generation ", name.generation(),
                      ")");
}

// The coordinator's part of a checkpoint directory. Calls do not block; they
// are executed in order, and answered in order.
class Archive {
 public:
  virtual ~Archive() = default;

  // Replaces the journal; answered when the new one would survive a crash of
  // the machine. Errors: the disk's, after which either the old or the new
  // journal is on disk; ABORTED when another process has written since.
  virtual void WriteJournal(const proto::Journal& journal,
                            Reply<Done> reply) = 0;

  // Completes the checkpoint that the manifest names; answered like
  // WriteJournal.
  virtual void WriteManifest(const proto::Manifest& manifest,
                             Reply<Done> reply) = 0;

  // Errors: NOT_FOUND; DATA_LOSS when the manifest is damaged, or a file that
  // it names is missing or has the wrong size; UNAVAILABLE when the directory
  // cannot be read; UNKNOWN when the directory can be read but the checkpoint
  // cannot.
  virtual void ReadManifest(const proto::CheckpointName& name,
                            Reply<proto::Manifest> reply) = 0;

  // Replaces the history of the job; answered like WriteJournal.
  virtual void WriteHistory(proto::History history, Reply<Done> reply) = 0;

  // Moves a checkpoint that counts as damaged out of the way, and keeps it: it
  // may be intact even if one machine cannot read it. RemoveOthers does not
  // remove it from then on. Failures are logged.
  virtual void SetAside(const proto::CheckpointName& name) = 0;

  // Links a checkpoint into the folder of the best, where it stays until the
  // journal no longer names it among them. Answered when the link would survive
  // a crash of the machine. OK if it is there already. Errors: NOT_FOUND, the
  // disk's.
  virtual void KeepBest(const proto::CheckpointName& name,
                        Reply<Done> reply) = 0;

  // Removes every checkpoint from the folder of the best that the journal last
  // written does not name among them. Failures are logged.
  virtual void RemoveOthersOfBest() = 0;

  // Removes every checkpoint, complete or not, that the journal last written
  // does not name, except for `under_way`. Failures are logged.
  virtual void RemoveOthers(const proto::CheckpointName* under_way) = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_ARCHIVE_H_
