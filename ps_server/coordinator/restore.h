// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_COORDINATOR_RESTORE_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_RESTORE_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/checkpoint.pb.h"
#include "proto/shard.pb.h"
#include "ps_server/coordinator/broadcast.h"
#include "ps_server/coordinator/disk_watch.h"
#include "ps_server/coordinator/job.h"
#include "ps_server/coordinator/operation.h"
#include "ps_server/protocol/repeated_failure.h"

namespace holdfast {

// Begins a generation, and gives every shard the state to resume from
// (docs/protocol/recovery.md, G1 to G5).
//
//  1. [G1] A shard or the coordinator has lost its state, and so the
//     generation's state is lost; the journal finishes the write in progress.
//  2. [G2] The last checkpoint in the journal is chosen, and its manifest read.
//     A damaged checkpoint is set aside and removed from the journal: 2 again.
//  3. [G3] The number of the generation is written to the journal. Then
//     messages may name the generation.
//  4. [G4] When the job is declared, and all ps have registered, Restore goes
//     to every shard. A shard that finds its data damaged says so: 1 again. A
//     shard that lacks first values says so, and is asked again until workers
//     have given them.
//  5. [G5] When all have answered, the variables exist.
//
// A job without a journal is in its only generation from the beginning: only 4
// and 5 apply.
class Restore : public Operation {
 public:
  explicit Restore(Job* job);

  // 1. `why` is reported to users. Does nothing if a generation is already
  //    beginning.
  void BeginGeneration(const std::string& why);
  // Whether 1 has happened and 3 has not been completed: no message may name
  // the new generation yet.
  bool beginning() const { return beginning_; }
  // Begins 2, if it is time.
  void Advance();
  // Called when the job has ended. Abandons whatever is in progress.
  void Abort();

  // 4.
  bool IsDue() const override;
  void Start() override;
  void Stop() override;
  void Tick() override { restore_.SendDue(); }
  std::string WaitingFor() const override;

  // What is being waited for while a generation is beginning.
  std::string WaitingForJournal() const;
  // When this generation began, and why.
  absl::Time generation_begun() const { return generation_begun_; }
  const std::string& recovered() const { return recovered_; }
  // Whether the shards read files for the last restore. is_reading: whether at
  // least one of them has not finished.
  bool needs_disk() const { return needs_disk_; }
  bool is_reading() const { return needs_disk_ && !watch_.all_done(); }
  const DiskWatch& watch() const { return watch_; }
  // Whether a shard lacks first values that workers must give.
  bool wants_values() const { return !wants_values_.empty(); }
  // When the shard that has stalled for longest last made progress in reading
  // files; the infinite past if no restore is in progress.
  absl::Time read_until() const {
    return watch_.active() ? watch_.standing_since() : absl::InfinitePast();
  }

 private:
  void ChooseCheckpoint();
  void OnManifest(const absl::StatusOr<proto::Manifest>& manifest);
  // Removes the last checkpoint, which cannot be read, from the journal.
  // Returns false if it was the only one: then the job has failed.
  bool DropCheckpoint(const absl::Status& why);
  void StartGeneration();
  // If the job begins with the slots of a warm start, continues to count from
  // the updates that those slots have seen. Errors: those of PlanWarmSlots.
  absl::Status TakeSlotsOver();
  Heard OnShard(uint32_t ps,
                const absl::StatusOr<proto::RestoreResponse>& response);
  void OnRestored();

  Job* const job_;
  bool beginning_ = false;
  bool reading_manifest_ = false;
  // When the manifest may be read again, after the directory could not be read.
  absl::Time not_before_ = absl::InfinitePast();
  // Failures to read the manifest.
  RepeatedFailure unreadable_;
  // The error that the archive last returned, while requests fail.
  std::string trouble_;
  absl::Time generation_begun_;
  std::string recovered_;
  // The checkpoint that the generation resumes from.
  proto::Manifest from_;
  bool needs_disk_ = false;
  DiskWatch watch_;
  // The ps that lack first values, each with a variable that lacks them.
  std::map<uint32_t, std::string> wants_values_;
  Broadcast<proto::RestoreRequest> restore_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_RESTORE_H_
