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

// Begins a generation, and gives every shard the state that it goes on from
// (docs/protocol/recovery.md, G1 to G5).
//
//  1. [G1] A shard or the coordinator has lost its state. What the generation
//     had is lost, too; the journal finishes what is under way.
//  2. [G2] The last checkpoint of the journal is chosen, and its manifest read.
//     A damaged one is set aside and taken off the journal: 2 again.
//  3. [G3] The number of the generation is written to the journal. Then the
//     generation may be spoken of.
//  4. [G4] When the job is declared, and all ps are there, Restore goes to
//     every shard. One that finds its data damaged says so: 1 again. One that
//     lacks first values says so, and is asked again until workers have given
//     them.
//  5. [G5] When all have answered, the variables exist.
//
// A job without a journal is in its only generation from the beginning: 4
// and 5.
class Restore : public Operation {
 public:
  explicit Restore(Job* job);

  // 1. `why` is told to people. Nothing is done where a generation is to begin
  // anyway.
  void BeginGeneration(const std::string& why);
  // Between 1 and 3: no message of the generation may leave.
  bool beginning() const { return beginning_; }
  // 2, if it is time.
  void Advance();
  // The end of the job.
  void Abort();

  // 4.
  bool IsDue() const override;
  void Start() override;
  void Stop() override;
  void Tick() override { restore_.SendDue(); }
  std::string WaitingFor() const override;

  // While beginning: what is waited for.
  std::string WaitingForJournal() const;
  // When this generation began, and why.
  absl::Time generation_begun() const { return generation_begun_; }
  const std::string& recovered() const { return recovered_; }
  // Whether shards read files for what they were last told to restore; and
  // whether one of them is not done with that.
  bool needs_disk() const { return needs_disk_; }
  bool is_reading() const { return needs_disk_ && !watch_.all_done(); }
  const DiskWatch& watch() const { return watch_; }
  // Whether a shard lacks first values that workers have to give.
  bool wants_values() const { return !wants_values_.empty(); }
  // While it is under way: until when shards have read files.
  absl::Time read_until() const {
    return watch_.active() ? watch_.standing_since() : absl::InfinitePast();
  }

 private:
  void ChooseCheckpoint();
  void OnManifest(const absl::StatusOr<proto::Manifest>& manifest);
  // The last checkpoint of the journal cannot be read. False when it was the
  // only one: the job has failed.
  bool DropCheckpoint(const absl::Status& why);
  void StartGeneration();
  // A job that begins with the slots of a warm start goes on from the updates
  // that these have seen. Errors: those of PlanWarmSlots.
  absl::Status TakeSlotsOver();
  Heard OnShard(uint32_t ps,
                const absl::StatusOr<proto::RestoreResponse>& response);
  void OnRestored();

  Job* const job_;
  bool beginning_ = false;
  bool reading_manifest_ = false;
  // Before a directory that could not be read is read again.
  absl::Time not_before_ = absl::InfinitePast();
  // Of the manifest that is read.
  RepeatedFailure unreadable_;
  // What the archive last answered, while it has not done what it should.
  std::string trouble_;
  absl::Time generation_begun_;
  std::string recovered_;
  // From where the generation goes on.
  proto::Manifest from_;
  bool needs_disk_ = false;
  DiskWatch watch_;
  // By ps that lacks first values: of which variable.
  std::map<uint32_t, std::string> wants_values_;
  Broadcast<proto::RestoreRequest> restore_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_RESTORE_H_
