// SPDX-License-Identifier: Apache-2.0
#include "ps_server/disk/directory_shard_disk.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/tensor/shape.h"
#include "glog/logging.h"
#include "ps_server/disk/load_tables.h"
#include "ps_server/disk/rest.h"
#include "ps_server/protocol/warm_slots.h"
#include "ps_server/reply/reply_on.h"

namespace holdfast {
namespace {

std::string TensorText(const proto::Variable& variable) {
  return absl::StrCat(proto::DataType_Name(variable.dtype()), " ",
                      ShapeString(variable.shape()));
}

// Whether the checkpoint in `folder` holds all of a slice with `num_slots`.
absl::Status CheckFits(const CheckpointReader& reader,
                       const std::string& folder, const StoredSlice& slice,
                       size_t num_slots) {
  const auto refuse = [&](auto... what) {
    return absl::FailedPreconditionError(absl::StrCat(
        folder, ": variable \"", slice.variable.name(), "\" ", what...));
  };
  const proto::Variable* stored = reader.FindVariable(slice.variable.name());
  if (stored == nullptr) return refuse("is declared, but not saved");
  if (!SameTensor(*stored, slice.variable)) {
    return refuse("is saved as ", TensorText(*stored), ", declared as ",
                  TensorText(slice.variable));
  }
  const size_t saved_slots = reader.num_slots(slice.variable.name());
  if (slice.size > 0 && saved_slots != num_slots) {
    return refuse("is saved with ", saved_slots, " slots, its optimizer has ",
                  num_slots);
  }
  return absl::OkStatus();
}

// Reads chunks of slice `i`: its values (0), or slot `slot` - 1.
absl::Status ReadSlice(CheckpointReader* reader, size_t i, uint32_t slot,
                       const Reading& reading, DenseStore* store) {
  const StoredSlice& slice = store->slices()[i];
  for (size_t c = 0; c < slice.num_chunks(); ++c) {
    HOLDFAST_RETURN_IF_ERROR(reading.go_on());
    float* const chunk = slot == 0 ? store->ValuesToLoad(i, c)
                                   : store->SlotToLoad(i, slot - 1, c);
    HOLDFAST_RETURN_IF_ERROR(reader->Read(
        slice.variable.name(), slot, slice.begin + c * kChunkElements,
        absl::MakeSpan(chunk, slice.chunk_size(c))));
    *reading.done += slice.chunk_size(c) * sizeof(float);
  }
  return absl::OkStatus();
}

absl::Status Resume(CheckpointReader* reader, const std::string& folder,
                    const Reading& reading, ShardState* state) {
  DenseStore* const store = state->store.get();
  for (size_t i = 0; i < store->slices().size(); ++i) {
    *reading.total +=
        store->slices()[i].size * sizeof(float) * (1 + store->num_slots(i));
  }
  for (const auto& table : state->tables) {
    *reading.total += BytesToLoad(*reader, *table);
  }
  for (size_t i = 0; i < store->slices().size(); ++i) {
    absl::Status status =
        CheckFits(*reader, folder, store->slices()[i], store->num_slots(i));
    for (uint32_t slot = 0; status.ok() && slot <= store->num_slots(i);
         ++slot) {
      status = ReadSlice(reader, i, slot, reading, store);
    }
    if (!status.ok()) return status;
  }
  for (const auto& table : state->tables) {
    HOLDFAST_RETURN_IF_ERROR(ResumeTable(reader, folder, reading, table.get()));
  }
  store->SetVersion(GlobalStep(reader->manifest().name().step()));
  return absl::OkStatus();
}

// `with_slots`: see ShardDisk::LoadOptions::warm_start_slots.
absl::Status WarmStart(CheckpointReader* reader, const std::string& folder,
                       bool with_slots, const proto::Declaration& declaration,
                       const Reading& reading, ShardState* state) {
  DenseStore* const store = state->store.get();
  const auto fits = [&](const proto::Variable& variable) {
    const proto::Variable* const stored = reader->FindVariable(variable.name());
    return stored != nullptr && SameTensor(*stored, variable);
  };
  std::vector<std::string> others;
  for (const proto::Variable& variable : declaration.variables()) {
    if (!fits(variable)) others.push_back(variable.name());
  }
  for (const proto::EmbeddingTable& table : declaration.tables()) {
    if (!HasTable(*reader, table)) others.push_back(table.name());
  }
  const int all = declaration.variables_size() + declaration.tables_size();
  const int warm = all - others.size();
  if (warm == 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "warm start from ", folder,
        ": none of this job's variables is there with the same name and shape, "
        "and no table with the same name and row length"));
  }
  absl::flat_hash_set<std::string> with_their_slots;
  if (with_slots) {
    HOLDFAST_ASSIGN_OR_RETURN(const auto plan,
                              PlanWarmSlots(declaration, reader->manifest()));
    with_their_slots.insert(plan.taken.begin(), plan.taken.end());
  }
  const auto slots_to_read = [&](size_t i) -> uint32_t {
    const std::string& name = store->slices()[i].variable.name();
    return with_their_slots.contains(name) ? store->num_slots(i) : 0;
  };
  for (size_t i = 0; i < store->slices().size(); ++i) {
    const StoredSlice& slice = store->slices()[i];
    if (!fits(slice.variable)) continue;
    *reading.total += slice.size * sizeof(float) * (1 + slots_to_read(i));
  }
  for (const auto& table : state->tables) {
    if (!HasTable(*reader, table->declared())) continue;
    *reading.total += BytesToLoad(*reader, *table);
  }
  for (size_t i = 0; i < store->slices().size(); ++i) {
    const StoredSlice& slice = store->slices()[i];
    if (!fits(slice.variable)) continue;
    const uint32_t slots = slots_to_read(i);
    absl::Status status = slots == 0 ? absl::OkStatus()
                                     : CheckFits(*reader, folder, slice, slots);
    for (uint32_t slot = 0; status.ok() && slot <= slots; ++slot) {
      status = ReadSlice(reader, i, slot, reading, store);
    }
    if (!status.ok()) return status;
  }
  for (const auto& table : state->tables) {
    if (!HasTable(*reader, table->declared())) continue;
    HOLDFAST_RETURN_IF_ERROR(WarmStartTable(
        reader, folder, with_their_slots.contains(table->declared().name()),
        reading, table.get()));
  }
  LOG(INFO) << "warm start from " << folder << ": " << warm << " of " << all
            << " variables and tables were taken from there"
            << (others.empty() ? "" : ", not ") << absl::StrJoin(others, ", ");
  return absl::OkStatus();
}

}  // namespace

DirectoryShardDisk::DirectoryShardDisk(CheckpointDirectory directory,
                                       uint32_t ps, Strand* home)
    : directory_(std::move(directory)), ps_(ps), home_(home) {}

DirectoryShardDisk::~DirectoryShardDisk() {
  stopping_ = true;
  saving_.Stop();
  loading_.Stop();
}

bool DirectoryShardDisk::Stop(absl::Duration patience) {
  stopping_ = true;
  const absl::Time deadline = SteadyNow() + patience;
  return ComesToRest(&saving_, deadline) && ComesToRest(&loading_, deadline);
}

absl::Status DirectoryShardDisk::CheckNotStopping() const {
  if (!stopping_) return absl::OkStatus();
  return absl::UnavailableError("this ps is stopping");
}

void DirectoryShardDisk::Save(const proto::CheckpointName& name,
                              uint32_t num_ps, ShardSnapshot snapshot,
                              Reply<proto::DataFile> reply) {
  const uint64_t save = ++saves_;
  save_progress_ = std::make_shared<Progress>();
  saving_.Post([this, save, name, num_ps, snapshot = std::move(snapshot),
                progress = save_progress_,
                reply = ReplyOn(home_, std::move(reply))]() mutable {
    const auto go_on = [&] {
      if (save != saves_) return absl::AbortedError("it is no longer needed");
      return CheckNotStopping();
    };
    // The snapshot is destroyed at the end of the expression.
    auto written =
        Write(name, num_ps, std::move(snapshot), go_on, progress.get());
    reply(std::move(written));
  });
}

proto::DiskProgress DirectoryShardDisk::SaveProgress() const {
  return Tell(*save_progress_);
}

proto::DiskProgress DirectoryShardDisk::LoadProgress() const {
  return Tell(*load_progress_);
}

proto::DiskProgress DirectoryShardDisk::Tell(const Progress& progress) {
  proto::DiskProgress told;
  told.set_bytes_done(progress.done);
  told.set_bytes_total(progress.total);
  return told;
}

absl::StatusOr<proto::DataFile> DirectoryShardDisk::Write(
    const proto::CheckpointName& name, uint32_t num_ps, ShardSnapshot snapshot,
    GoOn go_on, Progress* progress) const {
  const StoreSnapshot& dense = snapshot.dense;
  for (size_t i = 0; i < dense.slices.size(); ++i) {
    progress->total +=
        dense.slices[i].size * sizeof(float) * (1 + dense.slots[i].size());
  }
  for (const TableSnapshot& table : snapshot.tables) {
    progress->total += table.bytes();
  }
  HOLDFAST_ASSIGN_OR_RETURN(
      auto writer, DataFileWriter::Create(directory_, name, ps_, num_ps));
  const auto write =
      [&](const StoredSlice& slice, uint32_t slot,
          const std::vector<std::shared_ptr<const float>>& chunks) {
        absl::Status status =
            writer->Begin(slice.variable.name(), slot, slice.begin, slice.size);
        for (size_t c = 0; status.ok() && c < chunks.size(); ++c) {
          status = go_on();
          if (!status.ok()) break;
          status = writer->Append(
              absl::MakeConstSpan(chunks[c].get(), slice.chunk_size(c)));
          progress->done += slice.chunk_size(c) * sizeof(float);
        }
        return status;
      };
  for (size_t i = 0; i < dense.slices.size(); ++i) {
    const StoredSlice& slice = dense.slices[i];
    if (slice.size == 0) continue;
    absl::Status status = write(slice, 0, dense.version->slices[i]);
    for (size_t s = 0; status.ok() && s < dense.slots[i].size(); ++s) {
      status = write(slice, s + 1, dense.slots[i][s]);
    }
    if (!status.ok()) return status;
  }
  for (const TableSnapshot& table : snapshot.tables) {
    HOLDFAST_RETURN_IF_ERROR(WriteTable(table, go_on, progress, writer.get()));
  }
  return writer->Finish();
}

absl::Status DirectoryShardDisk::WriteTable(const TableSnapshot& table,
                                            GoOn go_on, Progress* progress,
                                            DataFileWriter* writer) {
  DataFileWriter::Rows rows;
  rows.table = table.declared().name();
  rows.floats_per_row = static_cast<uint32_t>(table.floats_per_row());
  rows.buckets = table.buckets();
  if (table.contents().since.has_value()) {
    rows.since = table.contents().since->value();
  }
  rows.changes = table.contents().changes;
  absl::Status status = writer->BeginRows(rows);
  const size_t row_bytes =
      sizeof(RowHeader) + table.floats_per_row() * sizeof(float);
  std::string bytes;
  for (uint32_t bucket = table.buckets().begin;
       status.ok() && bucket < table.buckets().end; ++bucket) {
    status = go_on();
    if (!status.ok()) break;
    bytes.clear();
    const StoredBucket contents = table.AppendBucket(bucket, &bytes);
    status = writer->AppendBucket(contents, bytes);
    // Counts all rows, because all of them are looked at.
    progress->done += contents.all_rows * row_bytes +
                      contents.all_candidates * sizeof(RowHeader);
  }
  return status;
}

void DirectoryShardDisk::Load(const LoadOptions& options,
                              Reply<ShardState> reply) {
  const uint64_t load = ++loads_;
  load_progress_ = std::make_shared<Progress>();
  loading_.Post([this, load, options, progress = load_progress_,
                 reply = ReplyOn(home_, std::move(reply))]() mutable {
    const auto go_on = [&] {
      if (load != loads_) {
        return absl::AbortedError("another load has replaced it");
      }
      return CheckNotStopping();
    };
    reply(Read(options, go_on, progress.get()));
  });
}

absl::StatusOr<ShardState> DirectoryShardDisk::Read(const LoadOptions& options,
                                                    GoOn go_on,
                                                    Progress* progress) const {
  absl::Status status = go_on();
  if (status.ok()) status = CheckDirectory(options.directory_nonce);
  if (!status.ok()) return status;

  proto::Declaration declaration = options.declaration;
  if (options.checkpoint.has_value()) {
    // First values are overwritten; random ones would cost time.
    for (proto::Variable& variable : *declaration.mutable_variables()) {
      variable.mutable_initializer()->mutable_zeros();
    }
  }
  HOLDFAST_ASSIGN_OR_RETURN(
      auto store,
      DenseStore::Create(declaration, options.slices, ps_,
                         options.slots_by_optimizer, options.arena));
  HOLDFAST_ASSIGN_OR_RETURN(
      auto tables,
      CreateTables(declaration, ps_, options.num_ps, options.table_max_bytes));
  ShardState state{std::move(store), std::move(tables)};
  status = ReadCheckpoint(options, declaration, go_on, progress, &state);
  if (status.ok()) return state;
  // The directory could be read a moment ago, so it is a file of the checkpoint
  // that cannot be read: UNKNOWN, not UNAVAILABLE (ShardDisk::Load).
  const bool unreadable = absl::IsUnavailable(status) && !stopping_;
  return unreadable ? absl::UnknownError(status.message()) : status;
}

absl::Status DirectoryShardDisk::ReadCheckpoint(
    const LoadOptions& options, const proto::Declaration& declaration,
    GoOn go_on, Progress* progress, ShardState* state) const {
  const Reading reading{go_on, &progress->total, &progress->done};
  if (options.checkpoint.has_value()) {
    HOLDFAST_ASSIGN_OR_RETURN(
        auto reader, CheckpointReader::Open(directory_, *options.checkpoint));
    return Resume(reader.get(), directory_.Folder(*options.checkpoint), reading,
                  state);
  }
  if (options.warm_start.empty()) return absl::OkStatus();
  HOLDFAST_ASSIGN_OR_RETURN(
      auto reader, CheckpointReader::OpenFolder(options.warm_start,
                                                directory_.file_system()));
  return WarmStart(reader.get(), options.warm_start, options.warm_start_slots,
                   declaration, reading, state);
}

absl::Status DirectoryShardDisk::CheckDirectory(uint64_t nonce) const {
  if (nonce == 0) return absl::OkStatus();
  // Read each time: a ps may have started before the journal was made.
  const auto journal = directory_.ReadJournal();
  if (journal.ok() && journal->directory_nonce() == nonce) {
    return absl::OkStatus();
  }
  if (!journal.ok() && !absl::IsNotFound(journal.status())) {
    return journal.status();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "checkpoint directory ", directory_.path(),
      " is not the one of /job:ps/task:0: ",
      journal.ok() ? absl::StrCat("its nonce is ", journal->directory_nonce(),
                                  ", not ", nonce)
                   : "it has no journal",
      "; all ps must see the same directory"));
}

}  // namespace holdfast
