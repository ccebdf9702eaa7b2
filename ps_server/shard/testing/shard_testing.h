// SPDX-License-Identifier: Apache-2.0

// Shared by the shard's tests: a small declaration, and a shard that a test
// drives by hand.
#ifndef HOLDFAST_PS_SERVER_SHARD_TESTING_SHARD_TESTING_H_
#define HOLDFAST_PS_SERVER_SHARD_TESTING_SHARD_TESTING_H_

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/job/task_id.h"
#include "common/tensor/buffer.h"
#include "common/tensor/tensor_piece.h"
#include "gtest/gtest.h"
#include "ps_server/protocol/receipts.h"
#include "ps_server/shard/shard.h"
#include "ps_server/shard/shard_disk.h"
#include "ps_server/shard/testing/machine_testing.h"
#include "ps_server/store/dense_store.h"

namespace holdfast {

inline constexpr absl::StatusCode kAborted = absl::StatusCode::kAborted;
inline constexpr absl::StatusCode kExists = absl::StatusCode::kAlreadyExists;
inline constexpr absl::StatusCode kExhausted =
    absl::StatusCode::kResourceExhausted;
inline constexpr absl::StatusCode kInternal = absl::StatusCode::kInternal;
inline constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
inline constexpr absl::StatusCode kNotFound = absl::StatusCode::kNotFound;
inline constexpr absl::StatusCode kNotReady =
    absl::StatusCode::kFailedPrecondition;
inline constexpr absl::StatusCode kUnavailable = absl::StatusCode::kUnavailable;
inline constexpr absl::StatusCode kDenied = absl::StatusCode::kPermissionDenied;

inline constexpr uint32_t kThisPs = 1;
// The nonce of this ps's process.
inline constexpr uint64_t kThisLife = 77;

proto::Sender Sender(const std::string& job, uint32_t index,
                     uint64_t incarnation = 1, uint64_t generation = 1);

proto::Sender Coordinator();
proto::Sender Reader();

Buffer Bytes(const std::vector<float>& values);

TensorPiece Tensor(const std::string& variable,
                   const std::vector<int64_t>& shape,
                   const std::vector<float>& values, uint64_t begin = 0);

// "w" [2,2] of ones, "b" [2] of zeros, "frozen" [1] of 3 on this ps, and "far"
// [8] on another. SGD with learning rate 0.5, or momentum 0.5 with 0.5.
proto::RestoreRequest MakeRestore(uint32_t n = 2, uint32_t m = 2,
                                  bool momentum = false);

// The receipts of jobs with the variables of MakeRestore.
Receipts ReceiptsOf(uint64_t generation = 1);

// A job of two workers with variables as in MakeRestore.
proto::RestoreRequest MakeAsynchronous(uint32_t pipeline_depth = 3,
                                       bool momentum = false);

proto::WorkerLife Life(uint32_t worker, uint64_t incarnation = 1);

// The applied pushes of a response, as "0.1#3 *0.5 of 10, staleness 2": push 3
// of worker 0's life 1, with its clip factor and examples.
template <typename Response>
std::string Told(const Response& response) {
  std::vector<std::string> parts;
  for (const proto::AppliedPush& push : response.applied()) {
    EXPECT_EQ(push.from().worker().job(), kWorkerJob);
    EXPECT_EQ(push.scalars_size(), 0);
    parts.push_back(absl::StrCat(
        push.from().worker().index(), ".", push.from().incarnation(), "#",
        push.sequence(), " *", push.clip_factor(), " of ", push.examples(),
        ", staleness ", push.staleness()));
  }
  return absl::StrJoin(parts, "; ");
}

// A disk whose work a test does by hand.
class FakeDisk : public ShardDisk {
 public:
  struct SaveCall {
    proto::CheckpointName name;
    uint32_t num_ps;
    StoreSnapshot snapshot;
    std::vector<TableSnapshot> tables;
    Reply<proto::DataFile> reply;
  };
  struct LoadCall {
    LoadOptions options;
    Reply<ShardState> reply;
  };

  void Save(const proto::CheckpointName& name, uint32_t num_ps,
            ShardSnapshot snapshot, Reply<proto::DataFile> reply) override;
  void AbandonSave() override;
  proto::DiskProgress SaveProgress() const override;
  proto::DiskProgress LoadProgress() const override;
  void Load(const LoadOptions& options, Reply<ShardState> reply) override;

  // Answers the first load with a store of `version` that has `value` in each
  // element of its first slice.
  void FinishLoad(float value, uint64_t version);
  // Answers the first save with a file of that name.
  void FinishSave(const std::string& file);
  void FailLoad(const absl::Status& why);
  void FailSave(const absl::Status& why);

  std::deque<SaveCall> saves;
  std::deque<LoadCall> loads;
  // The answer of SaveProgress and LoadProgress.
  proto::DiskProgress progress;
  // The number of calls of AbandonSave.
  int abandoned = 0;
};

class ShardTest : public ::testing::Test {
 protected:
  ShardTest() : shard_(MakeOptions(), &clock_, &disk_) {}

  void Restore(const proto::RestoreRequest& request = MakeRestore());

  // Part `part` of `num_parts` of a push.
  PushPart Part(uint32_t worker, uint64_t sequence, uint64_t step,
                std::vector<TensorPiece> tensors, uint32_t part = 0,
                uint32_t num_parts = 1);
  // A whole push in one part: `w` for each element of w, `b` for those of b.
  PushPart Whole(uint32_t worker, uint64_t sequence, uint64_t step, float w,
                 float b = 0);
  Answer<proto::PushResponse> Push(PushPart part);
  // Expects the part to be kept.
  void Stage(PushPart part);

  struct Counted {
    uint32_t worker;
    uint64_t sequence;
    float weight;
    float share = 0;
  };
  proto::CommitRequest MakeCommit(uint64_t step,
                                  const std::vector<Counted>& contributions);
  void Commit(uint64_t step, const std::vector<Counted>& contributions);
  // A step of worker 0 alone, with gradient `w` in each element of w.
  void Step(uint64_t step, float w);

  proto::PullRequest MakePull(const std::vector<std::string>& variables);
  Answer<PullReply> PullAtLeast(uint64_t version, uint64_t wait_ms = 1000);
  Answer<PullReply> PullExactly(uint64_t version);
  static std::vector<float> Values(const Answer<PullReply>& answer, size_t i);
  std::vector<float> Newest(const std::string& variable);

  Answer<proto::PinResponse> Pin(uint64_t hold_ms = 1000);
  Answer<proto::PinResponse> PinVersion(uint64_t version,
                                        uint64_t hold_ms = 1000);
  Answer<proto::UnpinResponse> Unpin(uint64_t pin);
  static proto::EndRequest EndOf(proto::JobPhase phase,
                                 const std::string& reason);
  Answer<proto::EndResponse> End(proto::JobPhase phase,
                                 const std::string& reason = "");

  static proto::HoldRequest HoldOf(uint64_t number);
  static proto::SaveRequest SaveOf(
      uint64_t number, uint64_t step,
      const std::vector<proto::AppliedPush>& applied = {});
  static proto::AwaitSavedRequest AwaitOf(uint64_t number,
                                          uint64_t wait_ms = 1000);
  void Pass(absl::Duration time);

  static Shard::Options MakeOptions();

  FakeClock clock_;
  FakeDisk disk_;
  Shard shard_;
};

// Tests of an asynchronous job.
class AsynchronousShardTest : public ShardTest {
 protected:
  void RestoreAsynchronous(uint32_t pipeline_depth = 3, bool momentum = false);

  // Returns the request with the receipts of an honest worker, whatever its
  // scalars are.
  static proto::ApplyRequest Signed(proto::ApplyRequest request);
  // Returns the request to apply a push of 10 examples with learning rate 0.5.
  proto::ApplyRequest ApplyOf(uint32_t worker, uint64_t sequence,
                              uint64_t incarnation = 1);
  // Returns the request to apply a push that changes nothing.
  proto::ApplyRequest NothingOf(uint32_t worker, uint64_t sequence,
                                uint64_t incarnation = 1);
  // Applies `request` with the right receipts.
  Answer<proto::ApplyResponse> Apply(const proto::ApplyRequest& request);
  Answer<proto::ApplyResponse> Apply(uint32_t worker, uint64_t sequence,
                                     uint64_t incarnation = 1);
  // Stages a push computed on the newest version, and applies it.
  void StageAndApply(uint32_t worker, uint64_t sequence, float w);
  PushPart WholeOf(uint32_t worker, uint64_t incarnation, uint64_t sequence,
                   float w);

  Answer<proto::FenceResponse> Fence(
      const std::vector<proto::WorkerLife>& lives);
  proto::AppliedPush Applied(const proto::WorkerLife& from, uint64_t sequence,
                             float clip_factor = 1);
  proto::ResolveRequest ResolveOf(
      const std::vector<proto::WorkerLife>& lives,
      const std::vector<proto::AppliedPush>& applied = {});
  Answer<proto::ResolveResponse> Resolve(
      const std::vector<proto::WorkerLife>& lives,
      const std::vector<proto::AppliedPush>& applied = {});
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SHARD_TESTING_SHARD_TESTING_H_
