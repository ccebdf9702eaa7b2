// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_COORDINATOR_SAVE_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_SAVE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/checkpoint.pb.h"
#include "proto/coordinator.pb.h"
#include "ps_server/coordinator/applied_pushes.h"
#include "ps_server/coordinator/broadcast.h"
#include "ps_server/coordinator/checkpoint_chain.h"
#include "ps_server/coordinator/checkpoint_tally.h"
#include "ps_server/coordinator/disk_watch.h"
#include "ps_server/coordinator/job.h"
#include "ps_server/coordinator/operation.h"
#include "ps_server/coordinator/save_schedule.h"
#include "ps_server/protocol/parked_calls.h"
#include "ps_server/protocol/push_id.h"
#include "ps_server/reply/reply.h"

namespace holdfast {

// Takes checkpoints, one at a time (docs/protocol/recovery.md, C1 to C5), and
// tracks which step and which pushes are durable.
//
//  1. [C1] A checkpoint is due: by the schedule, because a caller asks for one,
//     or as the last one of a job that is finished or stops.
//  2. [C2] Asynchronous: Hold(n) goes to every shard, and each reports what it
//     has applied.
//  3. [C3] Save(n, step) goes to every shard, until each holds its share of the
//     cut. Then training continues, unless the job stops [E3].
//  4. [C4] AwaitSaved(n) goes to every shard, until each has written its share.
//  5. The manifest is written, then the journal, which names the checkpoint;
//     this makes it durable. With the last checkpoint, the journal also says
//     that the job is finished [C5].
//
// A checkpoint that cannot be written is given up at 4 or 5, and the next one
// is begun later. A checkpoint that a new generation interrupts is never
// resumed.
class Save : public Operation {
 public:
  explicit Save(Job* job);

  // [G3] Called when a generation resumes from the checkpoint of `step`.
  void GoBack(uint64_t step);
  // [G5] Called when the generation has its state: checkpoints may be due from
  // now on. `from` is the manifest that the generation resumes from; empty if
  // there is none.
  void OnRestored(const proto::Manifest& from);
  // Called when a generation, or the job, has ended. Abandons whatever is in
  // progress.
  void Abort();

  // [C5, E3] Called when every step has been made, or the job stops. Makes the
  // last checkpoint due at once.
  void Conclude();
  // When the last checkpoint became due; absent if it has not.
  std::optional<absl::Time> concluding_since() const {
    return concluding_since_;
  }

  // Answers the call, or parks it until its checkpoint is durable. There must
  // be a declaration and an archive.
  void Checkpoint(const proto::CheckpointRequest& request,
                  Reply<proto::CheckpointResponse> reply);
  void AnswerAll();
  void AnswerDue();

  // The step of the newest checkpoint in the journal; 0 if there is none.
  // durable_through: the last push of `life` whose verdict that checkpoint
  // makes final; absent if there is none.
  uint64_t durable_step() const { return durable_step_; }
  std::optional<PushSequence> durable_through(const WorkerLife& life) const {
    const auto found = durable_through_.find(life);
    if (found == durable_through_.end()) return std::nullopt;
    return found->second;
  }

  bool IsDue() const override;
  void Start() override;
  void Stop() override;
  void Tick() override;
  std::string WaitingFor() const override;

  // Whether all shards hold their shares of a checkpoint, and at least one
  // share is not written yet.
  bool writing() const { return writing_; }
  // The shards that have not written their shares.
  std::vector<std::string> UnwrittenShares() const {
    return await_.Silent(&watch_);
  }
  // If no save is in progress: since when one could have been begun.
  absl::Time idle_since() const {
    return std::max(schedule_.begun(), not_before_);
  }
  const DiskWatch& watch() const { return watch_; }
  // Why checkpoints cannot be written; both fields are empty if they can. Users
  // are told again when `kind` changes, not at each attempt.
  struct Trouble {
    std::string kind;
    std::string text;
  };
  Trouble trouble() const;
  // Reports trouble that has not been reported to users yet.
  void TellOfTrouble();
  // Fills in durable_step, checkpoint_error, checkpoints and disk_progress.
  void AddTo(proto::GetStatusResponse* status) const;

 private:
  // Keyed by the step that must be durable.
  using Parked = ParkedCalls<uint64_t, proto::CheckpointResponse>;
  // A checkpoint that is being taken.
  struct Saving {
    // [E3] Whether the job stops with this checkpoint.
    bool last = false;
    // The manifest to write. `files` are filled in as the shards write them.
    proto::Manifest manifest;
    std::map<WorkerLife, PushSequence> through;
    // The error of the first share that failed. The save still waits for the
    // other shares: if the next save began while a shard was writing, that
    // shard could not take its share yet, and steps would wait for the shard.
    absl::Status error;
  };

  void OnHeld();
  proto::Position PositionNow() const;
  void OnPinned();
  Heard OnShare(uint32_t ps,
                const absl::StatusOr<proto::AwaitSavedResponse>& response);
  void OnShares();
  void WriteManifest();
  void OnManifest();
  void OnSaved();
  void GiveUp(const absl::Status& why);
  // Whether the checkpoint of that number is still being taken.
  bool IsTaking(uint64_t number) const {
    return saving_.has_value() && number_ == number;
  }
  proto::CheckpointResponse Answer(uint64_t step,
                                   const std::string& error) const;
  // `error` says why an attempt has just failed; empty if none has.
  void AnswerThese(std::vector<Parked::Call> calls,
                   const std::string& error = "");

  Job* const job_;
  SaveSchedule schedule_;
  CheckpointChain chain_;
  // No checkpoint begins earlier than this.
  absl::Time not_before_ = absl::InfinitePast();
  // The highest step that Checkpoint was asked for after it had been reached.
  uint64_t wanted_ = 0;
  Parked parked_;
  std::optional<absl::Time> concluding_since_;
  // Since when all attempts to write the last checkpoint have failed.
  absl::Time conclusion_failing_since_ = absl::InfiniteFuture();

  // The number, as in HoldRequest, of the checkpoint that was begun last.
  uint64_t number_ = 0;
  std::optional<Saving> saving_;
  bool writing_ = false;
  AppliedPushes applied_;
  DiskWatch watch_;
  Broadcast<proto::HoldRequest> hold_;
  Broadcast<proto::SaveRequest> save_;
  Broadcast<proto::AwaitSavedRequest> await_;

  uint64_t durable_step_ = 0;
  std::map<WorkerLife, PushSequence> durable_through_;
  // Why the last attempt failed.
  absl::Status error_;
  // The kind of trouble that was last reported to users.
  std::string told_kind_;
  CheckpointTally tally_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_SAVE_H_
