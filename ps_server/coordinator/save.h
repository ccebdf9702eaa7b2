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
// knows what is durable.
//
//  1. [C1] One is due: by the schedule, as somebody asks for it, or as the last
//     of a job that is finished, or stops.
//  2. [C2] Asynchronous: Hold(n) goes to every shard, and each tells what it
//  has
//     applied.
//  3. [C3] Save(n, step) goes to every shard, until each holds its share of the
//     cut. Then training goes on, unless the job stops [E3].
//  4. [C4] AwaitSaved(n) goes to every shard, until each has written its share.
//  5. The manifest is written, then the journal, which names the checkpoint: it
//     is durable. The last one says that the job is finished [C5].
//
// A checkpoint that cannot be written is given up at 4 or 5, and the next one
// is begun later. What is broken off by a new generation is never taken up
// again.
class Save : public Operation {
 public:
  explicit Save(Job* job);

  // [G3] A generation goes on from the checkpoint of that step.
  void GoBack(uint64_t step);
  // [G5] Checkpoints are due from now on. `from`: the one that the generation
  // goes on from; empty if there is none.
  void OnRestored(const proto::Manifest& from);
  // The end of a generation, or of the job: whatever is under way is over.
  void Abort();

  // [C5, E3] Every step is made, or the job stops: the last checkpoint is due
  // at once.
  void Conclude();
  // Since when the last checkpoint is due.
  std::optional<absl::Time> concluding_since() const {
    return concluding_since_;
  }

  // Answers those that wait for a checkpoint, or parks the call. There must be
  // a declaration and an archive.
  void Checkpoint(const proto::CheckpointRequest& request,
                  Reply<proto::CheckpointResponse> reply);
  void AnswerAll();
  void AnswerDue();

  // The step of the newest checkpoint that is in the journal; and by life, the
  // pushes whose verdicts it makes final.
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

  // All shards hold their shares, and a disk is waited for.
  bool writing() const { return writing_; }
  // The shards that have not written theirs.
  std::vector<std::string> UnwrittenShares() const {
    return await_.Silent(&watch_);
  }
  // When a save that could be begun has not been, since when.
  absl::Time idle_since() const {
    return std::max(schedule_.begun(), not_before_);
  }
  const DiskWatch& watch() const { return watch_; }
  // Why checkpoints are not written; nothing while there is no trouble. People
  // are told anew when the kind changes, not with each attempt.
  struct Trouble {
    std::string kind;
    std::string text;
  };
  Trouble trouble() const;
  // Tells people of trouble that they have not been told of.
  void TellOfTrouble();
  // Fills in durable_step, checkpoint_error, counts and how far the shards are.
  void AddTo(proto::GetStatusResponse* status) const;

 private:
  // By the step that is to be durable.
  using Parked = ParkedCalls<uint64_t, proto::CheckpointResponse>;
  // A checkpoint that is being taken.
  struct Saving {
    // [E3] The job stops with it.
    bool last = false;
    // Its files are filled in as shards have written them.
    proto::Manifest manifest;
    std::map<WorkerLife, PushSequence> through;
    // Of the first share that failed. The others are waited for: a shard takes
    // no second one while it writes, and steps would wait for it.
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
  // `error`: why an attempt has just failed.
  void AnswerThese(std::vector<Parked::Call> calls,
                   const std::string& error = "");

  Job* const job_;
  SaveSchedule schedule_;
  CheckpointChain chain_;
  // None begins earlier.
  absl::Time not_before_ = absl::InfinitePast();
  // Asked for by Checkpoint, of what was reached then.
  uint64_t wanted_ = 0;
  Parked parked_;
  std::optional<absl::Time> concluding_since_;
  // The last checkpoint could not be written, since then.
  absl::Time conclusion_failing_since_ = absl::InfiniteFuture();

  // Of the checkpoint that was begun last.
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
  // The kind of trouble that people have been told of last.
  std::string told_kind_;
  CheckpointTally tally_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_SAVE_H_
