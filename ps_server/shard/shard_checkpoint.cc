// SPDX-License-Identifier: Apache-2.0

// Generations and checkpoints: docs/protocol/recovery.md, G4 and C2 to C4.
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/rpc/timeouts.h"
#include "common/tensor/row_bucket.h"
#include "ps_server/protocol/request.h"
#include "ps_server/shard/shard.h"

namespace holdfast {
namespace {

// Whether the state can be restored only from a disk.
bool NeedsDisk(const proto::RestoreRequest& request) {
  return request.has_checkpoint() || request.directory_nonce() != 0 ||
         !request.warm_start().empty();
}

std::vector<std::unique_ptr<Optimizer>> MakeOptimizers(
    const proto::Declaration& declaration) {
  std::vector<std::unique_ptr<Optimizer>> optimizers;
  for (const proto::Optimizer& config : declaration.optimizers()) {
    optimizers.push_back(MakeOptimizer(config));
  }
  return optimizers;
}

absl::Status NoDisk(uint32_t ps, absl::string_view what) {
  return absl::FailedPreconditionError(absl::StrCat(
      "/job:ps/task:", ps, " has no --checkpoint_dir, and cannot ", what));
}

}  // namespace

// ---- G4: generations ----

absl::Status Shard::CheckRestore(const proto::RestoreRequest& request) const {
  if (request.sender().generation() == 0) {
    return absl::InvalidArgumentError("generation 0 stands for none");
  }
  if (request.receipt_key().size() != Receipts::kKeyBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("receipt_key has ", request.receipt_key().size(),
                     " bytes, must have ", Receipts::kKeyBytes));
  }
  if (NeedsDisk(request) && disk_ == nullptr) {
    return NoDisk(options_.index, "take part in a job with checkpoints");
  }
  return absl::OkStatus();
}

void Shard::Restore(const proto::RestoreRequest& request,
                    Reply<proto::RestoreResponse> reply) {
  if (absl::Status status = CheckIsCoordinator(request.sender());
      !status.ok()) {
    return reply(status);
  }
  if (IsOver(request.sender())) {
    return reply(CheckGeneration(request.sender()));
  }
  // [E4] This life is about to end; the next one will be restored.
  if (state_.phase() == proto::STOPPED) {
    return reply(absl::UnavailableError(EndedText()));
  }
  // End arrived before this call.
  if (ended()) return reply(absl::AbortedError(EndedText()));
  const Generation generation(request.sender().generation());
  if (generation == generation_ && store_ != nullptr) {  // [R3]
    return reply(RestoreAnswer());
  }
  const absl::Time now = clock_->Now();
  const auto park = [&] {
    if (parked_restores_.full()) {
      return reply(absl::UnavailableError("too many calls wait for the state"));
    }
    parked_restores_.Park({}, std::move(reply),
                          ParkedUntil(now, request.wait_ms()));
  };
  if (generation == generation_ && (loading_ || wanted_.has_value())) {
    park();
    return AnswerLateRestores(now);
  }
  if (generation == generation_ && load_error_.has_value()) {
    return reply(*std::exchange(load_error_, std::nullopt));
  }
  if (absl::Status status = CheckRestore(request); !status.ok()) {
    return reply(status);
  }
  const std::vector<proto::Slice> slices(request.slices().begin(),
                                         request.slices().end());
  const absl::StatusOr<MemoryPlan> memory =
      PlanMemory(request.declaration(), slices, options_.index,
                 options_.memory_limit_bytes,
                 /*lends=*/options_.arena != nullptr,
                 BucketsOfPs(options_.index, options_.num_ps));
  if (!memory.ok()) return reply(memory.status());

  if (generation != generation_) unreadable_.Clear();
  Begin(generation);
  declaration_ = request.declaration();
  receipts_.emplace(request.receipt_key(), generation, declaration_,
                    request.slices(), options_.num_ps);
  loss_scale_ = request.loss_scale();
  memory_ = *memory;
  row_memory_ = RowMemory(options_.arena, memory_.lent_row_bytes);
  optimizers_ = MakeOptimizers(declaration_);
  park();
  loading_ = true;
  std::vector<std::vector<float>> slots_by_optimizer;
  for (const auto& optimizer : optimizers_) {
    slots_by_optimizer.push_back(optimizer->initial_slots());
  }
  const std::vector<int64_t> table_max_bytes =
      ShardTables::MaxBytes(declaration_, memory_.table_bytes);
  if (!NeedsDisk(request)) {
    auto store = DenseStore::Create(declaration_, slices, options_.index,
                                    slots_by_optimizer, options_.arena);
    if (!store.ok()) return OnLoaded(store.status());
    auto tables = CreateTables(declaration_, options_.index, options_.num_ps,
                               table_max_bytes);
    if (!tables.ok()) return OnLoaded(tables.status());
    return OnLoaded(ShardState{*std::move(store), *std::move(tables)});
  }
  ShardDisk::LoadOptions load;
  load.directory_nonce = request.directory_nonce();
  load.declaration = declaration_;
  load.slices = slices;
  load.slots_by_optimizer = std::move(slots_by_optimizer);
  load.arena = options_.arena;
  if (request.has_checkpoint()) load.checkpoint = request.checkpoint();
  load.warm_start = request.warm_start();
  load.warm_start_slots = request.warm_start_slots();
  load.num_ps = options_.num_ps;
  load.table_max_bytes = table_max_bytes;
  disk_->Load(load, [this, load = load_](absl::StatusOr<ShardState> loaded) {
    if (load == load_) OnLoaded(std::move(loaded));
  });
  AnswerLateRestores(now);
}

void Shard::Begin(Generation generation) {
  const absl::Status why = absl::AbortedError(absl::StrCat(
      "generation ", generation_.value(), " is over at /job:ps/task:",
      options_.index, ", which begins generation ", generation.value()));
  generation_ = generation;
  state_.set_phase(proto::STARTING);
  ++load_;
  loading_ = false;
  load_error_.reset();
  staged_ = StagedPushes();
  store_ = nullptr;
  loss_scale_ = 0;
  optimizers_.clear();
  declaration_.Clear();
  receipts_.reset();
  wanted_.reset();
  memory_ = MemoryPlan();
  ledger_ = Ledger();
  fenced_.clear();
  pins_.clear();
  for (proto::TableReport& report : TableReports()) {
    table_totals_[report.name()] = std::move(report);
  }
  tables_ = ShardTables();
  holding_ = false;
  share_ = Share();
  // The share in progress is abandoned, so that the next share need not wait
  // for it.
  if (writing_) disk_->AbandonSave();
  auto restores = parked_restores_.TakeAll();
  auto pulls = parked_pulls_.TakeAll();
  auto applies = parked_applies_.TakeAll();
  for (auto& restore : restores) restore.reply(why);
  for (auto& pull : pulls) pull.reply(why);
  for (auto& apply : applies) apply.reply(ApplyAnswer(proto::ABORTED));
  AnswerAwaits(why);
}

void Shard::OnLoaded(absl::StatusOr<ShardState> loaded) {
  loading_ = false;
  absl::StatusOr<WantedValues> wanted =
      loaded.ok() ? WantedValues::Of(std::move(loaded->store))
                  : loaded.status();
  if (loaded.ok()) tables_ = ShardTables(std::move(loaded->tables));
  if (wanted.ok() && wanted->complete()) {
    return OnRestored(wanted->TakeStore());
  }
  auto restores = parked_restores_.TakeAll();
  absl::StatusOr<proto::RestoreResponse> answer;
  if (wanted.ok()) {
    // The coordinator is answered at once, so that it can ask workers.
    wanted_ = *std::move(wanted);
    answer = RestoreAnswer();
  } else {
    answer = LoadError(wanted.status());
    if (restores.empty()) load_error_ = answer.status();
  }
  for (auto& restore : restores) restore.reply(answer);
}

void Shard::OnRestored(std::unique_ptr<DenseStore> store) {
  wanted_.reset();
  store_ = std::move(store);
  // The next checkpoint may contain only changes.
  const proto::Checkpoints& checkpoints = declaration_.checkpoints();
  if (disk_ != nullptr &&
      !(checkpoints.has_max_deltas() && checkpoints.max_deltas() == 0)) {
    tables_.KeepChanges();
  }
  if (options_.on_values) {
    options_.on_values(store_->value_bytes(), memory_.max_lent_versions);
  }
  PushMemory::Options staging;
  staging.reserved_per_worker = memory_.reserved_per_worker;
  staging.max_per_worker = memory_.max_pushes_per_worker;
  staging.max_extra = memory_.extra_pushes;
  staged_.Configure(
      &store_->slices(),
      {declaration_.tables().begin(), declaration_.tables().end()}, staging);
  state_.set_phase(proto::TRAINING);
  const proto::RestoreResponse answer = RestoreAnswer();
  for (auto& restore : parked_restores_.TakeAll()) restore.reply(answer);
}

absl::Status Shard::LoadError(const absl::Status& why) {
  absl::StatusCode code = why.code();
  std::string times;
  if (absl::IsUnknown(why)) {
    const bool repeated =
        unreadable_.Count(clock_->Now(), DiskTimeout(declaration_.timeouts()));
    code =
        repeated ? absl::StatusCode::kDataLoss : absl::StatusCode::kUnavailable;
    if (repeated) times = absl::StrCat(" (", unreadable_.times(), " attempts)");
  }
  return absl::Status(code, absl::StrCat("/job:ps/task:", options_.index, ": ",
                                         why.message(), times));
}

void Shard::AnswerLateRestores(absl::Time now) {
  auto late = parked_restores_.TakeDue(now);
  if (late.empty()) return;
  const proto::RestoreResponse answer = RestoreAnswer();
  for (auto& restore : late) restore.reply(answer);
}

proto::RestoreResponse Shard::RestoreAnswer() const {
  proto::RestoreResponse response;
  response.set_generation(generation_.value());
  response.set_version(version().value());
  if (store_ != nullptr) return response;
  response.set_pending(true);
  if (wanted_.has_value()) {
    response.set_wants_values_of(wanted_->first_variable());
  } else {
    *response.mutable_progress() = disk_->LoadProgress();
  }
  return response;
}

void Shard::Give(const GivenPart& part, Reply<proto::GiveResponse> reply) {
  Count(part.tensors, &totals_.received);
  const bool wants =
      wanted_.has_value() && part.sender.generation() == generation_.value();
  absl::Status status = wants ? absl::OkStatus() : CheckRunning(part.sender);
  if (!status.ok()) return reply(status);
  const WorkerLife from = ToWorkerLife(part.sender);
  status = CheckMayPush(from);
  for (size_t i = 0; wants && status.ok() && i < part.tensors.size(); ++i) {
    status = wanted_->Add(part.tensors[i]);
  }
  if (!status.ok()) {
    return reply(absl::Status(status.code(),
                              absl::StrCat(status.message(), " (given by ",
                                           from.worker.ToString(), ")")));
  }
  proto::GiveResponse response;
  response.set_generation(generation_.value());
  if (wants) {
    for (proto::ReadRange& range : wanted_->Next()) {
      *response.add_wanted() = std::move(range);
    }
    if (wanted_->complete()) OnRestored(wanted_->TakeStore());  // [V1]
  }
  reply(std::move(response));
}

// ---- C2 to C4: checkpoints ----

void Shard::Hold(const proto::HoldRequest& request,
                 Reply<proto::HoldResponse> reply) {
  if (absl::Status status = CheckFromCoordinator(request.sender());
      !status.ok()) {
    return reply(status);
  }
  if (!asynchronous()) {
    return reply(absl::InternalError(absl::StrCat(
        "hold of checkpoint ", request.number(),
        " at /job:ps/task:", options_.index, ": the job is synchronous")));
  }
  proto::HoldResponse response;
  response.set_generation(generation_.value());
  if (request.number() > share_.number) {  // [T8]
    holding_ = true;
    // Nothing is kept of a life that is resolved.
    for (const WorkerLife& life : ledger_.Lives()) {
      AddKept(life, response.mutable_applied());
    }
  }
  reply(std::move(response));
}

void Shard::Save(const proto::SaveRequest& request,
                 Reply<proto::SaveResponse> reply) {
  if (absl::Status status = CheckFromCoordinator(request.sender());
      !status.ok()) {
    return reply(status);
  }
  const auto answer = [&] {
    proto::SaveResponse response;
    response.set_generation(generation_.value());
    response.set_version(version().value());
    reply(std::move(response));
  };
  if (request.number() <= share_.number) return answer();
  if (disk_ == nullptr) {
    return reply(NoDisk(options_.index, "save a share of a checkpoint"));
  }
  if (writing_) {
    return reply(absl::UnavailableError(
        absl::StrCat("/job:ps/task:", options_.index,
                     " is still writing its share of an earlier checkpoint")));
  }
  const auto refuse = [&](absl::string_view what) {
    reply(absl::InternalError(absl::StrCat("checkpoint ", request.number(),
                                           " of version ", request.step(), ": ",
                                           what)));
  };
  if (absl::Status status = ApplyMissing(request.applied()); !status.ok()) {
    return refuse(status.message());
  }
  if (asynchronous() && !receives()) {
    store_->SetVersion(GlobalStep(request.step()));
  }
  if (version() != GlobalStep(request.step())) {  // [R8]
    return refuse(absl::StrCat("/job:ps/task:", options_.index,
                               " is at version ", version().value()));
  }
  share_ = {request.number()};
  writing_ = true;
  writing_since_ = clock_->Now();
  proto::CheckpointName name;
  name.set_generation(generation_.value());
  name.set_step(request.step());
  std::optional<GlobalStep> durable;
  if (request.durable_step() > 0) durable = GlobalStep(request.durable_step());
  disk_->Save(
      name, options_.num_ps,
      {store_->Snapshot(), tables_.Snapshot(durable, request.changes())},
      [this](absl::StatusOr<proto::DataFile> outcome) {
        OnSaved(std::move(outcome));
      });
  answer();
  AnswerReached();
  if (request.last()) return;
  holding_ = false;
  std::set<WorkerLife> waiting;
  for (auto* apply = parked_applies_.Next(0); apply != nullptr;
       apply = parked_applies_.Next(apply->number)) {
    waiting.insert(apply->key.from);
  }
  for (const WorkerLife& life : waiting) RetryApplies(life);  // [T7]
}

void Shard::OnSaved(absl::StatusOr<proto::DataFile> outcome) {
  writing_ = false;
  if (outcome.ok()) {
    ++totals_.saves;
    totals_.save_time = clock_->Now() - writing_since_;
    totals_.save_bytes = outcome->size();
  } else if (!absl::IsAborted(outcome.status())) {
    ++totals_.failed_saves;
  }
  // One share is written at a time. It is the share that was taken last, or it
  // belongs to a generation that is over, so that no call can ask for it.
  share_.outcome = std::move(outcome);
  AnswerAwaits(SavedAnswer());
}

absl::StatusOr<proto::AwaitSavedResponse> Shard::SavedAnswer() const {
  proto::AwaitSavedResponse response;
  response.set_generation(generation_.value());
  if (share_.outcome.has_value()) {
    if (!share_.outcome->ok()) {
      // Asking again would give the same answer, so the code must not invite a
      // retry.
      const absl::Status& why = share_.outcome->status();
      return absl::IsUnavailable(why) ? absl::InternalError(why.message())
                                      : why;
    }
    *response.mutable_file() = **share_.outcome;
  } else if (disk_ != nullptr) {
    *response.mutable_progress() = disk_->SaveProgress();
  }
  return response;
}

void Shard::AwaitSaved(const proto::AwaitSavedRequest& request,
                       Reply<proto::AwaitSavedResponse> reply) {
  if (absl::Status status = CheckFromCoordinator(request.sender());
      !status.ok()) {
    return reply(status);
  }
  if (request.number() != share_.number) {
    return reply(absl::NotFoundError(absl::StrCat(
        "checkpoint ", request.number(), " was not saved at /job:ps/task:",
        options_.index, ", the last one is ", share_.number)));
  }
  if (share_.outcome.has_value() || request.wait_ms() == 0 ||
      parked_awaits_.full()) {
    return reply(SavedAnswer());
  }
  parked_awaits_.Park({}, std::move(reply),
                      ParkedUntil(clock_->Now(), request.wait_ms()));
}

void Shard::AnswerAwaits(
    const absl::StatusOr<proto::AwaitSavedResponse>& answer) {
  for (auto& await : parked_awaits_.TakeAll()) await.reply(answer);
}

}  // namespace holdfast
