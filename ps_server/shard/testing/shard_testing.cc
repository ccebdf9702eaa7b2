// SPDX-License-Identifier: Apache-2.0
#include "ps_server/shard/testing/shard_testing.h"

#include <algorithm>
#include <optional>

#include "ps_server/protocol/request.h"

namespace holdfast {

proto::Sender Sender(const std::string& job, uint32_t index,
                     uint64_t incarnation, uint64_t generation) {
  proto::Sender sender;
  sender.mutable_task()->set_job(job);
  sender.mutable_task()->set_index(index);
  sender.set_incarnation(incarnation);
  sender.set_generation(generation);
  return sender;
}

proto::Sender Coordinator() {
  proto::Sender sender = Sender(kPsJob, 0, 0);
  sender.set_receiver_nonce(kThisLife);
  return sender;
}

proto::Sender Reader() { return Sender("client", 0, 0); }

Buffer Bytes(const std::vector<float>& values) {
  return Buffer::FromString(
      std::string(reinterpret_cast<const char*>(values.data()),
                  values.size() * sizeof(float)));
}

TensorPiece Tensor(const std::string& variable,
                   const std::vector<int64_t>& shape,
                   const std::vector<float>& values, uint64_t begin) {
  TensorPiece piece;
  piece.variable = variable;
  piece.shape = shape;
  piece.begin = begin;
  piece.data = Bytes(values);
  return piece;
}

proto::RestoreRequest MakeRestore(uint32_t n, uint32_t m, bool momentum) {
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

Receipts ReceiptsOf(uint64_t generation) {
  const proto::RestoreRequest request = MakeRestore();
  return Receipts(request.receipt_key(), Generation(generation),
                  request.declaration(), request.slices(), 3);
}

proto::RestoreRequest MakeAsynchronous(uint32_t pipeline_depth, bool momentum) {
  proto::RestoreRequest request = MakeRestore(2, 2, momentum);
  proto::Declaration& declaration = *request.mutable_declaration();
  declaration.clear_consistency();
  declaration.mutable_consistency()->mutable_asynchronous()->set_pipeline_depth(
      pipeline_depth);
  declaration.set_examples(proto::BY_TICKET);
  declaration.set_total_tickets(declaration.total_steps());
  return request;
}

proto::WorkerLife Life(uint32_t worker, uint64_t incarnation) {
  proto::WorkerLife life;
  life.mutable_worker()->set_job(kWorkerJob);
  life.mutable_worker()->set_index(worker);
  life.set_incarnation(incarnation);
  return life;
}

void FakeDisk::Save(const proto::CheckpointName& name, uint32_t num_ps,
                    ShardSnapshot snapshot, Reply<proto::DataFile> reply) {
  saves.push_back({name, num_ps, std::move(snapshot.dense),
                   std::move(snapshot.tables), std::move(reply)});
}

void FakeDisk::AbandonSave() { ++abandoned; }

proto::DiskProgress FakeDisk::SaveProgress() const { return progress; }

proto::DiskProgress FakeDisk::LoadProgress() const { return progress; }

void FakeDisk::Load(const LoadOptions& options, Reply<ShardState> reply) {
  loads.push_back({options, std::move(reply)});
}

void FakeDisk::FinishLoad(float value, uint64_t version) {
  LoadCall load = std::move(loads.front());
  loads.pop_front();
  auto store = DenseStore::Create(load.options.declaration, load.options.slices,
                                  kThisPs, load.options.slots_by_optimizer);
  ASSERT_TRUE(store.ok()) << store.status();
  std::fill_n((*store)->ValuesToLoad(0, 0), (*store)->slices()[0].size, value);
  (*store)->SetVersion(GlobalStep(version));
  auto tables = CreateTables(load.options.declaration, kThisPs,
                             load.options.num_ps, load.options.table_max_bytes);
  ASSERT_TRUE(tables.ok()) << tables.status();
  for (const auto& table : *tables) table->SetVersion(GlobalStep(version));
  load.reply(ShardState{*std::move(store), *std::move(tables)});
}

void FakeDisk::FinishSave(const std::string& file) {
  SaveCall save = std::move(saves.front());
  saves.pop_front();
  proto::DataFile answer;
  answer.set_name(file);
  save.reply(std::move(answer));
}

void FakeDisk::FailLoad(const absl::Status& why) {
  LoadCall load = std::move(loads.front());
  loads.pop_front();
  load.reply(why);
}

void FakeDisk::FailSave(const absl::Status& why) {
  SaveCall save = std::move(saves.front());
  saves.pop_front();
  save.reply(why);
}

void ShardTest::Restore(const proto::RestoreRequest& request) {
  ASSERT_TRUE(Ask(shard_, &Shard::Restore, request).status().ok());
}

PushPart ShardTest::Part(uint32_t worker, uint64_t sequence, uint64_t step,
                         std::vector<TensorPiece> tensors, uint32_t part,
                         uint32_t num_parts) {
  PushPart push;
  push.sender = Sender(kWorkerJob, worker);
  push.sequence = PushSequence(sequence);
  push.step = GlobalStep(step);
  push.part = part;
  push.num_parts = num_parts;
  push.tensors = std::move(tensors);
  return push;
}

PushPart ShardTest::Whole(uint32_t worker, uint64_t sequence, uint64_t step,
                          float w, float b) {
  return Part(worker, sequence, step,
              {Tensor("w", {2, 2}, {w, w, w, w}), Tensor("b", {2}, {b, b})});
}

Answer<proto::PushResponse> ShardTest::Push(PushPart part) {
  Answer<proto::PushResponse> answer;
  shard_.Push(std::move(part), answer.Catch());
  return answer;
}

void ShardTest::Stage(PushPart part) {
  const auto answer = Push(std::move(part));
  EXPECT_TRUE(answer.status().ok()) << answer.status();
  EXPECT_EQ(answer->verdict(), proto::VERDICT_UNSPECIFIED);
}

proto::CommitRequest ShardTest::MakeCommit(
    uint64_t step, const std::vector<Counted>& contributions) {
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

void ShardTest::Commit(uint64_t step,
                       const std::vector<Counted>& contributions) {
  const auto answer =
      Ask(shard_, &Shard::Commit, MakeCommit(step, contributions));
  EXPECT_TRUE(answer.status().ok()) << answer.status();
  EXPECT_EQ(answer->version(), step + 1);
  EXPECT_EQ(answer->generation(), 1u);
  EXPECT_EQ(shard_.version(), GlobalStep(step + 1));
}

void ShardTest::Step(uint64_t step, float w) {
  Stage(Whole(0, step + 1, step, w));
  Commit(step, {{0, step + 1, 1}});
}

proto::PullRequest ShardTest::MakePull(
    const std::vector<std::string>& variables) {
  proto::PullRequest request;
  *request.mutable_sender() = Reader();
  for (const std::string& name : variables) {
    proto::ReadRange& range = *request.add_ranges();
    range.set_variable(name);
    range.set_size(name == "w" ? 4 : name == "b" ? 2 : 1);
  }
  return request;
}

Answer<PullReply> ShardTest::PullAtLeast(uint64_t version, uint64_t wait_ms) {
  proto::PullRequest request = MakePull({"w"});
  request.set_min_version(version);
  request.set_wait_ms(wait_ms);
  return Ask(shard_, &Shard::Pull, request);
}

Answer<PullReply> ShardTest::PullExactly(uint64_t version) {
  proto::PullRequest request = MakePull({"w"});
  request.set_exact_version(version);
  return Ask(shard_, &Shard::Pull, request);
}

std::vector<float> ShardTest::Values(const Answer<PullReply>& answer,
                                     size_t i) {
  if (i >= answer->tensors.size()) return {};
  const Buffer& data = answer->tensors[i].data;
  std::vector<float> values(data.size() / sizeof(float));
  data.CopyTo(values.data());
  return values;
}

std::vector<float> ShardTest::Newest(const std::string& variable) {
  return Values(Ask(shard_, &Shard::Pull, MakePull({variable})), 0);
}

Answer<proto::PinResponse> ShardTest::Pin(uint64_t hold_ms) {
  proto::PinRequest request;
  *request.mutable_sender() = Reader();
  request.set_hold_ms(hold_ms);
  return Ask(shard_, &Shard::Pin, request);
}

Answer<proto::PinResponse> ShardTest::PinVersion(uint64_t version,
                                                 uint64_t hold_ms) {
  proto::PinRequest request;
  *request.mutable_sender() = Reader();
  request.set_version(version);
  request.set_hold_ms(hold_ms);
  return Ask(shard_, &Shard::Pin, request);
}

Answer<proto::UnpinResponse> ShardTest::Unpin(uint64_t pin) {
  proto::UnpinRequest request;
  *request.mutable_sender() = Reader();
  request.set_pin(pin);
  return Ask(shard_, &Shard::Unpin, request);
}

proto::EndRequest ShardTest::EndOf(proto::JobPhase phase,
                                   const std::string& reason) {
  proto::EndRequest request;
  *request.mutable_sender() = Coordinator();
  request.mutable_state()->set_phase(phase);
  request.mutable_state()->set_reason(reason);
  return request;
}

Answer<proto::EndResponse> ShardTest::End(proto::JobPhase phase,
                                          const std::string& reason) {
  return Ask(shard_, &Shard::End, EndOf(phase, reason));
}

proto::HoldRequest ShardTest::HoldOf(uint64_t number) {
  proto::HoldRequest request;
  *request.mutable_sender() = Coordinator();
  request.set_number(number);
  return request;
}

proto::SaveRequest ShardTest::SaveOf(
    uint64_t number, uint64_t step,
    const std::vector<proto::AppliedPush>& applied) {
  proto::SaveRequest request;
  *request.mutable_sender() = Coordinator();
  request.set_number(number);
  request.set_step(step);
  request.mutable_applied()->Assign(applied.begin(), applied.end());
  return request;
}

proto::AwaitSavedRequest ShardTest::AwaitOf(uint64_t number, uint64_t wait_ms) {
  proto::AwaitSavedRequest request;
  *request.mutable_sender() = Coordinator();
  request.set_number(number);
  request.set_wait_ms(wait_ms);
  return request;
}

void ShardTest::Pass(absl::Duration time) {
  clock_.Advance(time);
  shard_.Tick();
}

Shard::Options ShardTest::MakeOptions() {
  Shard::Options options;
  options.index = kThisPs;
  options.num_ps = 3;
  options.nonce = kThisLife;
  return options;
}

void AsynchronousShardTest::RestoreAsynchronous(uint32_t pipeline_depth,
                                                bool momentum) {
  Restore(MakeAsynchronous(pipeline_depth, momentum));
}

proto::ApplyRequest AsynchronousShardTest::Signed(proto::ApplyRequest request) {
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

proto::ApplyRequest AsynchronousShardTest::ApplyOf(uint32_t worker,
                                                   uint64_t sequence,
                                                   uint64_t incarnation) {
  proto::ApplyRequest request;
  *request.mutable_sender() = Sender(kWorkerJob, worker, incarnation);
  request.set_sequence(sequence);
  request.set_examples(10);
  request.add_scalars()->set_learning_rate(0.5f);
  request.set_wait_ms(1000);
  return Signed(request);
}

proto::ApplyRequest AsynchronousShardTest::NothingOf(uint32_t worker,
                                                     uint64_t sequence,
                                                     uint64_t incarnation) {
  proto::ApplyRequest request = ApplyOf(worker, sequence, incarnation);
  request.set_clip_factor(0);
  request.set_examples(0);
  return request;
}

Answer<proto::ApplyResponse> AsynchronousShardTest::Apply(
    const proto::ApplyRequest& request) {
  return Ask(shard_, &Shard::Apply, Signed(request));
}

Answer<proto::ApplyResponse> AsynchronousShardTest::Apply(
    uint32_t worker, uint64_t sequence, uint64_t incarnation) {
  return Apply(ApplyOf(worker, sequence, incarnation));
}

void AsynchronousShardTest::StageAndApply(uint32_t worker, uint64_t sequence,
                                          float w) {
  Stage(Whole(worker, sequence, shard_.version().value(), w));
  EXPECT_EQ(Apply(worker, sequence)->verdict(), proto::ACCEPTED);
}

PushPart AsynchronousShardTest::WholeOf(uint32_t worker, uint64_t incarnation,
                                        uint64_t sequence, float w) {
  PushPart part = Whole(worker, sequence, 0, w);
  part.sender.set_incarnation(incarnation);
  return part;
}

Answer<proto::FenceResponse> AsynchronousShardTest::Fence(
    const std::vector<proto::WorkerLife>& lives) {
  proto::FenceRequest request;
  *request.mutable_sender() = Coordinator();
  for (const proto::WorkerLife& life : lives) *request.add_lives() = life;
  return Ask(shard_, &Shard::Fence, request);
}

proto::AppliedPush AsynchronousShardTest::Applied(const proto::WorkerLife& from,
                                                  uint64_t sequence,
                                                  float clip_factor) {
  proto::AppliedPush push;
  *push.mutable_from() = from;
  push.set_sequence(sequence);
  push.set_clip_factor(clip_factor);
  push.set_examples(10);
  push.add_scalars()->set_learning_rate(0.5f);
  return push;
}

proto::ResolveRequest AsynchronousShardTest::ResolveOf(
    const std::vector<proto::WorkerLife>& lives,
    const std::vector<proto::AppliedPush>& applied) {
  proto::ResolveRequest request;
  *request.mutable_sender() = Coordinator();
  for (const proto::WorkerLife& life : lives) *request.add_lives() = life;
  for (const proto::AppliedPush& push : applied) {
    *request.add_applied() = push;
  }
  return request;
}

Answer<proto::ResolveResponse> AsynchronousShardTest::Resolve(
    const std::vector<proto::WorkerLife>& lives,
    const std::vector<proto::AppliedPush>& applied) {
  return Ask(shard_, &Shard::Resolve, ResolveOf(lives, applied));
}

}  // namespace holdfast
