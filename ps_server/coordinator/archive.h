#ifndef HOLDFAST_PS_SERVER_COORDINATOR_ARCHIVE_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_ARCHIVE_H_

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/checkpoint.pb.h"
#include "ps_server/reply/reply.h"

namespace holdfast {

// Before a disk that refused is tried again.
inline constexpr absl::Duration kDiskRetryAfter = absl::Seconds(1);

// A checkpoint as people are told of it.
inline std::string ToString(const proto::CheckpointName& name) {
  return absl::StrCat("step ", name.step(), " (generation ", name.generation(),
                      ")");
}

// The coordinator's part of a checkpoint directory. Calls do not block; they
// are carried out in order, and answered in order.
class Archive {
 public:
  virtual ~Archive() = default;

  // Replaces the journal; answered when the new one would outlive a crash of
  // the machine. Errors: the disk's, after which the old or the new one stands;
  // ABORTED when somebody else has written since.
  virtual void WriteJournal(const proto::Journal& journal,
                            Reply<Done> reply) = 0;

  // Completes the checkpoint that the manifest names; answered as WriteJournal.
  virtual void WriteManifest(const proto::Manifest& manifest,
                             Reply<Done> reply) = 0;

  // Errors: NOT_FOUND; DATA_LOSS when it is damaged, or a file that it names is
  // not there in the right size; UNAVAILABLE when the directory cannot be read;
  // UNKNOWN when it can, and the checkpoint cannot.
  virtual void ReadManifest(const proto::CheckpointName& name,
                            Reply<proto::Manifest> reply) = 0;

  // Replaces the history of the job; answered as WriteJournal.
  virtual void WriteHistory(proto::History history, Reply<Done> reply) = 0;

  // Takes a checkpoint that counts as damaged out of the way, and keeps it:
  // what one machine cannot read may be whole. Not removed by RemoveOthers from
  // then on. What cannot be done is told in the log.
  virtual void SetAside(const proto::CheckpointName& name) = 0;

  // Links a checkpoint into the folder of the best, where it stays until the
  // journal names it there no more. Answered when it would outlive a crash of
  // the machine. OK when it is there already. Errors: NOT_FOUND, the disk's.
  virtual void KeepBest(const proto::CheckpointName& name,
                        Reply<Done> reply) = 0;

  // Removes every checkpoint from the folder of the best that the journal last
  // written does not name among them. What cannot be removed is told in the
  // log.
  virtual void RemoveOthersOfBest() = 0;

  // Removes every checkpoint, complete or not, that the journal last written
  // does not name, but for `under_way`. What cannot be removed is told in the
  // log.
  virtual void RemoveOthers(const proto::CheckpointName* under_way) = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_ARCHIVE_H_
