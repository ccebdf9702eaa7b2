// What the shard's tests share: a small declaration, and a shard that is spoken
// to when a test tells it.
#ifndef HOLDFAST_PS_SERVER_SHARD_SHARD_TESTING_H_
#define HOLDFAST_PS_SERVER_SHARD_SHARD_TESTING_H_

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/buffer.h"
#include "common/task_id.h"
#include "common/tensor_piece.h"
#include "gtest/gtest.h"
#include "ps_server/protocol/receipts.h"
#include "ps_server/protocol/request.h"
#include "ps_server/shard/shard.h"
#include "ps_server/shard/shard_disk.h"
#include "ps_server/shard/testing.h"
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
// The nonce of its process.
inline constexpr uint64_t kThisLife = 77;

inline proto::Sender Sender(const std::string& job, uint32_t index,
                            uint64_t incarnation = 1, uint64_t generation = 1) {
  proto::Sender sender;
  sender.mutable_task()->set_job(job);
  sender.mutable_task()->set_index(index);
  sender.set_incarnation(incarnation);
  sender.set_generation(generation);
  return sender;
}

inline proto::Sender Coordinator() {
  proto::Sender sender = Sender(kPsJob, 0, 0);
  sender.set_receiver_nonce(kThisLife);
  return sender;
}
inline proto::Sender Reader() { return Sender("client", 0, 0); }

inline Buffer Bytes(const std::vector<float>& values) {
  return Buffer::FromString(
      std::string(reinterpret_cast<const char*>(values.data()),
                  values.size() * sizeof(float)));
}

inline TensorPiece Tensor(const std::string& variable,
                          const std::vector<int64_t>& shape,
                          const std::vector<float>& values,
                          uint64_t begin = 0) {
  TensorPiece piece;
  piece.variable = variable;
  piece.shape = shape;
  piece.begin = begin;
  piece.data = Bytes(values);
  return piece;
}

// "w" [2,2] of ones, "b" [2] of zeros, "frozen" [1] of 3 on this ps, and "far"
// [8] on another. SGD with learning rate 0.5, or momentum 0.5 with 0.5.
inline proto::RestoreRequest MakeRestore(uint32_t n = 2, uint32_t m = 2,
                                         bool momentum = false) {
  proto::RestoreRequest request;
  *request.mutable_sender() = Coordinator();
  request.set_receipt_key(std::string(Receipts::kKeyBytes, 'k'));
  proto::Declaration& declaration = *request.mutable_declaration();
  const auto add = [&](const std::string& name,
                       const std::vector<int64_t>& shape, float value,
                       uint32_t ps) {
    proto::Variable& variable = *declaration.add_variables();
    variable.set_name(name);
    variable.mutable_shape()->Assign(shape.begin(), shape.end());
    variable.set_dtype(proto::FLOAT32);
    variable.mutable_initializer()->mutable_constant()->set_value(value);
    proto::Slice& slice = *request.add_slices();
    slice.set_variable(name);
    slice.set_size(1);
    for (const int64_t d : shape) slice.set_size(slice.size() * d);
    slice.set_ps(ps);
  };
  add("w", {2, 2}, 1, kThisPs);
  add("far", {8}, 0, kThisPs + 1);
  add("b", {2}, 0, kThisPs);
  add("frozen", {1}, 3, kThisPs);
  declaration.mutable_variables(3)->set_trainable(false);
  proto::Optimizer& optimizer = *declaration.add_optimizers();
  optimizer.set_learning_rate(0.5f);
  if (momentum) {
    optimizer.mutable_momentum()->set_momentum(0.5f);
  } else {
    optimizer.mutable_sgd();
  }
  auto& mode = *declaration.mutable_consistency()->mutable_synchronous();
  mode.set_replicas_to_aggregate(n);
  mode.set_total_num_replicas(m);
  declaration.set_total_steps(100);
  declaration.set_num_workers(m);
  return request;
}

// Of all that is restored with the variables of MakeRestore.
inline Receipts ReceiptsOf(uint64_t generation = 1) {
  const proto::RestoreRequest request = MakeRestore();
  return Receipts(request.receipt_key(), Generation(generation),
                  request.declaration(), request.slices(), 3);
}

// A job of two workers with variables as in MakeRestore.
inline proto::RestoreRequest MakeAsynchronous(uint32_t pipeline_depth = 3,
                                              bool momentum = false) {
  proto::RestoreRequest request = MakeRestore(2, 2, momentum);
  proto::Declaration& declaration = *request.mutable_declaration();
  declaration.clear_consistency();
  declaration.mutable_consistency()->mutable_asynchronous()->set_pipeline_depth(
      pipeline_depth);
  declaration.set_examples(proto::BY_TICKET);
  declaration.set_total_tickets(declaration.total_steps());
  return request;
}

inline proto::WorkerLife Life(uint32_t worker, uint64_t incarnation = 1) {
  proto::WorkerLife life;
  life.mutable_worker()->set_job(kWorkerJob);
  life.mutable_worker()->set_index(worker);
  life.set_incarnation(incarnation);
  return life;
}

// As "0.1#3 *0.5 of 10, staleness 2": push 3 of worker 0's life 1, with its
// clip factor and examples.
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
    Reply<proto::DataFile> reply;
  };
  struct LoadCall {
    LoadOptions options;
    Reply<std::unique_ptr<DenseStore>> reply;
  };

  void Save(const proto::CheckpointName& name, uint32_t num_ps,
            StoreSnapshot snapshot, Reply<proto::DataFile> reply) override {
    saves.push_back({name, num_ps, std::move(snapshot), std::move(reply)});
  }
  void AbandonSave() override { ++abandoned; }
  proto::DiskProgress SaveProgress() const override { return progress; }
  proto::DiskProgress LoadProgress() const override { return progress; }
  void Load(const LoadOptions& options,
            Reply<std::unique_ptr<DenseStore>> reply) override {
    loads.push_back({options, std::move(reply)});
  }

  // Answers the first load with a store of `version` that has `value` in each
  // element of its first slice.
  void FinishLoad(float value, uint64_t version) {
    LoadCall load = std::move(loads.front());
    loads.pop_front();
    auto store =
        DenseStore::Create(load.options.declaration, load.options.slices,
                           kThisPs, load.options.slots_by_optimizer);
    ASSERT_TRUE(store.ok()) << store.status();
    std::fill_n((*store)->ValuesToLoad(0, 0), (*store)->slices()[0].size,
                value);
    (*store)->SetVersion(GlobalStep(version));
    load.reply(*std::move(store));
  }
  // Answers the first save with a file of that name.
  void FinishSave(const std::string& file) {
    SaveCall save = std::move(saves.front());
    saves.pop_front();
    proto::DataFile answer;
    answer.set_name(file);
    save.reply(std::move(answer));
  }
  void FailLoad(const absl::Status& why) {
    LoadCall load = std::move(loads.front());
    loads.pop_front();
    load.reply(why);
  }
  void FailSave(const absl::Status& why) {
    SaveCall save = std::move(saves.front());
    saves.pop_front();
    save.reply(why);
  }

  std::deque<SaveCall> saves;
  std::deque<LoadCall> loads;
  // Of whatever is asked for.
  proto::DiskProgress progress;
  // Calls of AbandonSave.
  int abandoned = 0;
};

class ShardTest : public ::testing::Test {
 protected:
  ShardTest() : shard_(MakeOptions(), &clock_, &disk_) {}

  void Restore(const proto::RestoreRequest& request = MakeRestore()) {
    ASSERT_TRUE(Ask(shard_, &Shard::Restore, request).status().ok());
  }

  // Part `part` of `num_parts` of a push.
  PushPart Part(uint32_t worker, uint64_t sequence, uint64_t step,
                std::vector<TensorPiece> tensors, uint32_t part = 0,
                uint32_t num_parts = 1) {
    PushPart push;
    push.sender = Sender(kWorkerJob, worker);
    push.sequence = PushSequence(sequence);
    push.step = GlobalStep(step);
    push.part = part;
    push.num_parts = num_parts;
    push.tensors = std::move(tensors);
    return push;
  }
  // A whole push in one part: `w` for each element of w, `b` for those of b.
  PushPart Whole(uint32_t worker, uint64_t sequence, uint64_t step, float w,
                 float b = 0) {
    return Part(worker, sequence, step,
                {Tensor("w", {2, 2}, {w, w, w, w}), Tensor("b", {2}, {b, b})});
  }
  Answer<proto::PushResponse> Push(PushPart part) {
    Answer<proto::PushResponse> answer;
    shard_.Push(std::move(part), answer.Catch());
    return answer;
  }
  // Expects the part to be kept.
  void Stage(PushPart part) {
    const auto answer = Push(std::move(part));
    EXPECT_TRUE(answer.status().ok()) << answer.status();
    EXPECT_EQ(answer->verdict(), proto::VERDICT_UNSPECIFIED);
  }

  struct Counted {
    uint32_t worker;
    uint64_t sequence;
    float weight;
    float share = 0;
  };
  proto::CommitRequest MakeCommit(uint64_t step,
                                  const std::vector<Counted>& contributions) {
    proto::CommitRequest request;
    *request.mutable_sender() = Coordinator();
    request.set_step(step);
    for (const Counted& counted : contributions) {
      proto::StepContribution& c = *request.add_contributions();
      c.set_seat(request.contributions_size() - 1);
      c.mutable_worker()->set_job(kWorkerJob);
      c.mutable_worker()->set_index(counted.worker);
      c.set_incarnation(1);
      c.set_sequence(counted.sequence);
      c.set_weight(counted.weight);
      c.set_share(counted.share);
    }
    request.add_scalars()->set_learning_rate(0.5f);
    return request;
  }
  void Commit(uint64_t step, const std::vector<Counted>& contributions) {
    const auto answer =
        Ask(shard_, &Shard::Commit, MakeCommit(step, contributions));
    EXPECT_TRUE(answer.status().ok()) << answer.status();
    EXPECT_EQ(answer->version(), step + 1);
    EXPECT_EQ(answer->generation(), 1u);
    EXPECT_EQ(shard_.version(), GlobalStep(step + 1));
  }
  // A step of worker 0 alone, with gradient `w` in each element of w.
  void Step(uint64_t step, float w) {
    Stage(Whole(0, step + 1, step, w));
    Commit(step, {{0, step + 1, 1}});
  }

  proto::PullRequest MakePull(const std::vector<std::string>& variables) {
    proto::PullRequest request;
    *request.mutable_sender() = Reader();
    for (const std::string& name : variables) {
      proto::ReadRange& range = *request.add_ranges();
      range.set_variable(name);
      range.set_size(name == "w" ? 4 : name == "b" ? 2 : 1);
    }
    return request;
  }
  Answer<PullReply> PullAtLeast(uint64_t version, uint64_t wait_ms = 1000) {
    proto::PullRequest request = MakePull({"w"});
    request.set_min_version(version);
    request.set_wait_ms(wait_ms);
    return Ask(shard_, &Shard::Pull, request);
  }
  Answer<PullReply> PullExactly(uint64_t version) {
    proto::PullRequest request = MakePull({"w"});
    request.set_exact_version(version);
    return Ask(shard_, &Shard::Pull, request);
  }
  static std::vector<float> Values(const Answer<PullReply>& answer, size_t i) {
    if (i >= answer->tensors.size()) return {};
    const Buffer& data = answer->tensors[i].data;
    std::vector<float> values(data.size() / sizeof(float));
    data.CopyTo(values.data());
    return values;
  }
  std::vector<float> Newest(const std::string& variable) {
    return Values(Ask(shard_, &Shard::Pull, MakePull({variable})), 0);
  }

  Answer<proto::PinResponse> Pin(uint64_t hold_ms = 1000) {
    proto::PinRequest request;
    *request.mutable_sender() = Reader();
    request.set_hold_ms(hold_ms);
    return Ask(shard_, &Shard::Pin, request);
  }
  Answer<proto::PinResponse> PinVersion(uint64_t version,
                                        uint64_t hold_ms = 1000) {
    proto::PinRequest request;
    *request.mutable_sender() = Reader();
    request.set_version(version);
    request.set_hold_ms(hold_ms);
    return Ask(shard_, &Shard::Pin, request);
  }
  Answer<proto::UnpinResponse> Unpin(uint64_t pin) {
    proto::UnpinRequest request;
    *request.mutable_sender() = Reader();
    request.set_pin(pin);
    return Ask(shard_, &Shard::Unpin, request);
  }
  static proto::EndRequest EndOf(proto::JobPhase phase,
                                 const std::string& reason) {
    proto::EndRequest request;
    *request.mutable_sender() = Coordinator();
    request.mutable_state()->set_phase(phase);
    request.mutable_state()->set_reason(reason);
    return request;
  }
  Answer<proto::EndResponse> End(proto::JobPhase phase,
                                 const std::string& reason = "") {
    return Ask(shard_, &Shard::End, EndOf(phase, reason));
  }

  static proto::HoldRequest HoldOf(uint64_t number) {
    proto::HoldRequest request;
    *request.mutable_sender() = Coordinator();
    request.set_number(number);
    return request;
  }
  static proto::SaveRequest SaveOf(
      uint64_t number, uint64_t step,
      const std::vector<proto::AppliedPush>& applied = {}) {
    proto::SaveRequest request;
    *request.mutable_sender() = Coordinator();
    request.set_number(number);
    request.set_step(step);
    request.mutable_applied()->Assign(applied.begin(), applied.end());
    return request;
  }
  static proto::AwaitSavedRequest AwaitOf(uint64_t number,
                                          uint64_t wait_ms = 1000) {
    proto::AwaitSavedRequest request;
    *request.mutable_sender() = Coordinator();
    request.set_number(number);
    request.set_wait_ms(wait_ms);
    return request;
  }
  void Pass(absl::Duration time) {
    clock_.Advance(time);
    shard_.Tick();
  }

  static Shard::Options MakeOptions() {
    Shard::Options options;
    options.index = kThisPs;
    options.num_ps = 3;
    options.nonce = kThisLife;
    return options;
  }

  FakeClock clock_;
  FakeDisk disk_;
  Shard shard_;
};

// With an asynchronous job.
class AsynchronousShardTest : public ShardTest {
 protected:
  void RestoreAsynchronous(uint32_t pipeline_depth = 3, bool momentum = false) {
    Restore(MakeAsynchronous(pipeline_depth, momentum));
  }

  // With the receipts of an honest worker, whatever the scalars.
  static proto::ApplyRequest Signed(proto::ApplyRequest request) {
    const Receipts receipts = ReceiptsOf(request.sender().generation());
    const PushId push{ToWorkerLife(request.sender()),
                      PushSequence(request.sequence())};
    request.clear_receipts();
    for (uint32_t ps = 0; ps < 3; ++ps) {
      request.add_receipts(receipts.Held(ps, push, std::nullopt));
    }
    request.set_ticket_receipt(receipts.OfTicket(push, request.scalars()));
    return request;
  }
  // Of 10 examples, with learning rate 0.5.
  proto::ApplyRequest ApplyOf(uint32_t worker, uint64_t sequence,
                              uint64_t incarnation = 1) {
    proto::ApplyRequest request;
    *request.mutable_sender() = Sender(kWorkerJob, worker, incarnation);
    request.set_sequence(sequence);
    request.set_examples(10);
    request.add_scalars()->set_learning_rate(0.5f);
    request.set_wait_ms(1000);
    return Signed(request);
  }
  // Of a push that has nothing to give.
  proto::ApplyRequest NothingOf(uint32_t worker, uint64_t sequence,
                                uint64_t incarnation = 1) {
    proto::ApplyRequest request = ApplyOf(worker, sequence, incarnation);
    request.set_clip_factor(0);
    request.set_examples(0);
    return request;
  }
  // As it is, but with the right receipts.
  Answer<proto::ApplyResponse> Apply(const proto::ApplyRequest& request) {
    return Ask(shard_, &Shard::Apply, Signed(request));
  }
  Answer<proto::ApplyResponse> Apply(uint32_t worker, uint64_t sequence,
                                     uint64_t incarnation = 1) {
    return Apply(ApplyOf(worker, sequence, incarnation));
  }
  // Stages a push computed on the newest version, and applies it.
  void StageAndApply(uint32_t worker, uint64_t sequence, float w) {
    Stage(Whole(worker, sequence, shard_.version().value(), w));
    EXPECT_EQ(Apply(worker, sequence)->verdict(), proto::ACCEPTED);
  }
  PushPart WholeOf(uint32_t worker, uint64_t incarnation, uint64_t sequence,
                   float w) {
    PushPart part = Whole(worker, sequence, 0, w);
    part.sender.set_incarnation(incarnation);
    return part;
  }

  Answer<proto::FenceResponse> Fence(
      const std::vector<proto::WorkerLife>& lives) {
    proto::FenceRequest request;
    *request.mutable_sender() = Coordinator();
    for (const proto::WorkerLife& life : lives) *request.add_lives() = life;
    return Ask(shard_, &Shard::Fence, request);
  }
  proto::AppliedPush Applied(const proto::WorkerLife& from, uint64_t sequence,
                             float clip_factor = 1) {
    proto::AppliedPush push;
    *push.mutable_from() = from;
    push.set_sequence(sequence);
    push.set_clip_factor(clip_factor);
    push.set_examples(10);
    push.add_scalars()->set_learning_rate(0.5f);
    return push;
  }
  proto::ResolveRequest ResolveOf(
      const std::vector<proto::WorkerLife>& lives,
      const std::vector<proto::AppliedPush>& applied = {}) {
    proto::ResolveRequest request;
    *request.mutable_sender() = Coordinator();
    for (const proto::WorkerLife& life : lives) *request.add_lives() = life;
    for (const proto::AppliedPush& push : applied) {
      *request.add_applied() = push;
    }
    return request;
  }
  Answer<proto::ResolveResponse> Resolve(
      const std::vector<proto::WorkerLife>& lives,
      const std::vector<proto::AppliedPush>& applied = {}) {
    return Ask(shard_, &Shard::Resolve, ResolveOf(lives, applied));
  }
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SHARD_SHARD_TESTING_H_
