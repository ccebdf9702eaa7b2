// SPDX-License-Identifier: Apache-2.0
#include "tests/world/disk.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "glog/logging.h"
#include "tests/world/world.h"

namespace holdfast::sim {
namespace {

// Used in place of a ps number.
constexpr uint32_t kCoordinatorsView = 8;

// The checksum of all values.
uint32_t Checksum(const Disk::Share& share) {
  std::string bytes;
  for (const auto& [array, ranges] : share) {
    for (const auto& [begin, values] : ranges) {
      bytes.append(reinterpret_cast<const char*>(values.data()),
                   values.size() * sizeof(float));
    }
  }
  return std::hash<std::string>()(bytes);
}

std::vector<float> Copied(
    const StoredSlice& slice,
    const std::vector<std::shared_ptr<const float>>& chunks) {
  std::vector<float> values;
  for (size_t chunk = 0; chunk < chunks.size(); ++chunk) {
    const float* const from = chunks[chunk].get();
    values.insert(values.end(), from, from + slice.chunk_size(chunk));
  }
  return values;
}

}  // namespace

// ---- Requests of the coordinator ----

class Disk::OpenedArchive : public Archive {
 public:
  explicit OpenedArchive(World* world) : world_(world) {}

  void WriteJournal(const proto::Journal& journal, Reply<Done> reply) override {
    world_->Call(kCoordinator, kDisk, Disk::WriteJournal{journal},
                 std::move(reply));
  }
  void WriteManifest(const proto::Manifest& manifest,
                     Reply<Done> reply) override {
    world_->Call(kCoordinator, kDisk, Disk::WriteManifest{manifest},
                 std::move(reply));
  }
  void ReadManifest(const proto::CheckpointName& name,
                    Reply<proto::Manifest> reply) override {
    world_->Call(kCoordinator, kDisk, Disk::ReadManifest{name},
                 std::move(reply));
  }
  // Not left to the scheduler, because nothing depends on it.
  void WriteHistory(proto::History history, Reply<Done> reply) override {
    world_->disk().set_history(std::move(history));
    reply(Done());
  }
  void SetAside(const proto::CheckpointName& name) override {
    world_->Call(kCoordinator, kDisk, Disk::SetAside{name},
                 [](const absl::StatusOr<Done>&) {});
  }
  void KeepBest(const proto::CheckpointName& name, Reply<Done> reply) override {
    world_->Call(kCoordinator, kDisk, Disk::KeepBest{name}, std::move(reply));
  }
  void RemoveOthersOfBest() override {
    world_->Call(kCoordinator, kDisk, Disk::RemoveOthersOfBest{},
                 [](const absl::StatusOr<Done>&) {});
  }
  void RemoveOthers(const proto::CheckpointName* under_way) override {
    Disk::RemoveOthers request;
    if (under_way != nullptr) request.spared = NameOf(*under_way);
    world_->Call(kCoordinator, kDisk, request,
                 [](const absl::StatusOr<Done>&) {});
  }

 private:
  World* const world_;
};

// A failed write may still have been executed.
void Disk::Write(const std::function<void()>& write, Reply<Done> reply) {
  const DiskFault fault = world_->scheduler()->NextDiskFault(/*is_read=*/false);
  if (fault != DiskFault::kBeforeItIsDone) write();
  if (fault == DiskFault::kNone) return reply(Done());
  reply(world_->Random(2) == 0
            ? absl::ResourceExhaustedError("no space is left")
            : absl::UnavailableError("input/output"));
}

void Disk::Do(const Disk::WriteJournal& request, Reply<Done> reply) {
  Write(
      [&] {
        NoteDropped(request.journal);
        journal_ = request.journal;
        for (const proto::CheckpointName& name : journal_.checkpoints()) {
          durable_step_ = std::max(durable_step_, name.step());
        }
        world_->Check(world_->oracle().CheckJournal(*this));
      },
      std::move(reply));
}

void Disk::Do(const Disk::WriteManifest& request, Reply<Done> reply) {
  Write(
      [&] {
        const Name name = NameOf(request.manifest.name());
        Checkpoint& checkpoint = checkpoints_[name];
        checkpoint.manifest = request.manifest;
        checkpoint.complete = true;
        world_->Check(world_->oracle().CheckCheckpoint(*this, name));
      },
      std::move(reply));
}

void Disk::Do(const Disk::ReadManifest& request, Reply<proto::Manifest> reply) {
  switch (world_->scheduler()->NextDiskFault(/*is_read=*/true)) {
    case DiskFault::kBeforeItIsDone:
      return reply(absl::UnavailableError("the disk is away"));
    case DiskFault::kAfterItWasDone:
      return reply(absl::UnknownError("a sector cannot be read"));
    case DiskFault::kNone:
      break;
  }
  const Name name = NameOf(request.name);
  const auto found = checkpoints_.find(name);
  if (found == checkpoints_.end() || !found->second.complete) {
    return reply(absl::NotFoundError("no such checkpoint"));
  }
  if (IsUnreadable(name, kCoordinatorsView)) {
    return reply(absl::UnknownError("the manifest cannot be read"));
  }
  if (found->second.manifest_damaged) {
    return reply(absl::DataLossError("the manifest is damaged"));
  }
  absl::Status status = CheckFiles(found->second, found->second.manifest);
  if (!status.ok()) return reply(status);
  reply(found->second.manifest);
}

void Disk::Do(const Disk::SetAside& request, Reply<Done> reply) {
  auto moved = checkpoints_.extract(NameOf(request.name));
  if (!moved.empty()) aside_.insert(std::move(moved));
  reply(Done());
}

void Disk::Do(const Disk::KeepBest& request, Reply<Done> reply) {
  const Name name = NameOf(request.name);
  if (checkpoints_.count(name) == 0) {
    return reply(absl::NotFoundError("no such checkpoint"));
  }
  Write([&] { best_.insert(name); }, std::move(reply));
}

// Keeps the checkpoints that the journal names as best.
void Disk::Do(const Disk::RemoveOthersOfBest& request, Reply<Done> reply) {
  std::set<Name> kept;
  for (const proto::CheckpointName& name : journal_.best()) {
    CHECK_EQ(best_.count(NameOf(name)), 1);
    kept.insert(NameOf(name));
  }
  best_ = std::move(kept);
  reply(Done());
}

void Disk::Do(const Disk::RemoveOthers& request, Reply<Done> reply) {
  std::set<Name> needed;
  for (const proto::CheckpointName& name : journal_.checkpoints()) {
    const auto found = checkpoints_.find(NameOf(name));
    if (found == checkpoints_.end()) continue;
    for (const proto::ChainLink& link : found->second.manifest.chain()) {
      needed.insert(NameOf(link.checkpoint()));
    }
  }
  for (auto it = checkpoints_.begin(); it != checkpoints_.end();) {
    const bool named = std::any_of(
        journal_.checkpoints().begin(), journal_.checkpoints().end(),
        [&](const auto& name) { return NameOf(name) == it->first; });
    if (named || needed.count(it->first) > 0 || it->first == request.spared) {
      ++it;
      continue;
    }
    if (dropped_.count(it->first) > 0) destroyed_any_ = true;
    it = checkpoints_.erase(it);
  }
  world_->Check(world_->oracle().CheckJournal(*this));
  reply(Done());
}

// ---- Requests of a shard ----

class Disk::OpenedShardDisk : public ShardDisk {
 public:
  OpenedShardDisk(World* world, uint32_t ps) : world_(world), ps_(ps) {}

  void Save(const proto::CheckpointName& name, uint32_t num_ps,
            ShardSnapshot snapshot, Reply<proto::DataFile> reply) override {
    saving_ = world_->Now();
    Disk::SaveShare request;
    request.name = NameOf(name);
    request.ps = ps_;
    request.snapshot = std::make_shared<ShardSnapshot>(std::move(snapshot));
    request.number = ++wanted_->save;
    request.wanted = wanted_;
    world_->Call(ShardNode(ps_), kDisk, request, std::move(reply));
  }
  void AbandonSave() override {
    ++wanted_->save;
    world_->scheduler()->Hurry(ShardNode(ps_), kSaveLane);
  }
  // Progress of one byte per millisecond.
  proto::DiskProgress SaveProgress() const override { return Since(saving_); }
  proto::DiskProgress LoadProgress() const override { return Since(loading_); }

  void Load(const LoadOptions& options, Reply<ShardState> reply) override {
    loading_ = world_->Now();
    Disk::LoadShare request;
    request.options = options;
    request.ps = ps_;
    request.number = ++wanted_->load;
    request.wanted = wanted_;
    world_->scheduler()->Hurry(ShardNode(ps_), kLoadLane);
    world_->Call(ShardNode(ps_), kDisk, request, std::move(reply));
    // First values are not read from disk.
    if (!options.checkpoint.has_value()) {
      world_->scheduler()->Hurry(ShardNode(ps_), kLoadLane);
    }
  }

 private:
  proto::DiskProgress Since(absl::Time begun) const {
    proto::DiskProgress progress;
    progress.set_bytes_done(absl::ToInt64Milliseconds(world_->Now() - begun));
    progress.set_bytes_total(progress.bytes_done() + 1);
    return progress;
  }

  World* const world_;
  const uint32_t ps_;
  const std::shared_ptr<Wanted> wanted_ = std::make_shared<Wanted>();
  // When the last save and the last load began.
  absl::Time saving_;
  absl::Time loading_;
};

// A share that is no longer wanted may be written all the same.
void Disk::Do(const Disk::SaveShare& request, Reply<proto::DataFile> reply) {
  const DiskFault fault = world_->scheduler()->NextDiskFault(/*is_read=*/false);
  const bool abandoned =
      request.number != request.wanted->save && world_->Random(2) > 0;
  absl::StatusOr<proto::DataFile> saved =
      absl::AbortedError("it is no longer wanted");
  if (!abandoned && fault != DiskFault::kBeforeItIsDone) {
    saved = Save(request.name, request.ps, *request.snapshot);
  }
  if (fault != DiskFault::kNone && !abandoned) {
    saved = absl::ResourceExhaustedError("the disk is full");
  }
  *request.snapshot = ShardSnapshot();
  reply(std::move(saved));
}

proto::DataFile Disk::Save(const Name& name, uint32_t ps,
                           const ShardSnapshot& whole) {
  const StoreSnapshot& snapshot = whole.dense;
  File& file = checkpoints_[name].files[ps];
  file = File();
  file.file.set_name(absl::StrCat("ps-", ps));
  for (size_t i = 0; i < snapshot.slices.size(); ++i) {
    const StoredSlice& slice = snapshot.slices[i];
    const std::string& variable = slice.variable.name();
    file.share[{variable, 0}][slice.begin] =
        Copied(slice, snapshot.version->slices[i]);
    for (size_t s = 0; s < snapshot.slots[i].size(); ++s) {
      file.share[{variable, s + 1}][slice.begin] =
          Copied(slice, snapshot.slots[i][s]);
    }
  }
  for (const TableSnapshot& table : whole.tables) {
    for (uint32_t b = table.buckets().begin; b < table.buckets().end; ++b) {
      std::string rows;
      table.AppendBucket(b, &rows);
      if (!rows.empty()) file.rows[table.declared().name()][b] = rows;
    }
    if (table.contents().changes) {
      file.changes.insert(table.declared().name());
    }
  }
  file.file.set_index_crc32c(Checksum(file.share));
  return file.file;
}

absl::Status Disk::LoadRows(const std::vector<const Checkpoint*>& links,
                            EmbeddingTable* to) {
  const std::string& name = to->declared().name();
  const size_t num_floats = to->floats(EmbeddingTable::Kind::kRow);
  const size_t row_bytes = sizeof(RowHeader) + num_floats * sizeof(float);
  // Rows by id, each from the newest checkpoint that has it.
  std::map<uint64_t, const char*> rows;
  // Buckets of which a checkpoint looked at so far has all rows.
  std::vector<bool> done(kRowBuckets, false);
  for (const Checkpoint* const link : links) {
    const uint32_t num_ps = link->manifest.files_size();
    for (const auto& [ps, file] : link->files) {
      if (ps >= num_ps) continue;
      const BucketRange saved = BucketsOfPs(ps, num_ps);
      const auto buckets = file.rows.find(name);
      if (buckets != file.rows.end()) {
        for (const auto& [bucket, bytes] : buckets->second) {
          if (!to->buckets().Contains(bucket) || done[bucket]) {
            continue;
          }
          for (size_t at = 0; at < bytes.size(); at += row_bytes) {
            uint64_t id;
            std::memcpy(&id, &bytes[at], sizeof(id));
            rows.emplace(id, &bytes[at]);
          }
        }
      }
      if (file.changes.count(name) > 0) continue;
      std::fill(done.begin() + saved.begin, done.begin() + saved.end, true);
    }
  }
  for (const auto& [id, at] : rows) {
    RowHeader row;
    std::vector<float> floats(num_floats);
    std::memcpy(&row, at, sizeof(row));
    std::memcpy(floats.data(), at + sizeof(row), num_floats * sizeof(float));
    HOLDFAST_RETURN_IF_ERROR(to->Load(EmbeddingTable::Kind::kRow, id,
                                      row.step(), row.count(), floats));
  }
  return absl::OkStatus();
}

void Disk::Do(const Disk::LoadShare& request, Reply<ShardState> reply) {
  switch (world_->scheduler()->NextDiskFault(/*is_read=*/true)) {
    case DiskFault::kBeforeItIsDone:
      return reply(absl::UnavailableError("the disk is away"));
    case DiskFault::kAfterItWasDone:
      return reply(absl::UnknownError("a sector cannot be read"));
    case DiskFault::kNone:
      break;
  }
  if (request.number != request.wanted->load) {
    return reply(absl::AbortedError("another load has taken its place"));
  }
  reply(Load(request.options, request.ps));
}

absl::StatusOr<ShardState> Disk::Load(const ShardDisk::LoadOptions& options,
                                      uint32_t ps) {
  if (options.directory_nonce != journal_.directory_nonce()) {
    return absl::FailedPreconditionError("another directory");
  }
  HOLDFAST_ASSIGN_OR_RETURN(
      auto store, DenseStore::Create(options.declaration, options.slices, ps,
                                     options.slots_by_optimizer));
  HOLDFAST_ASSIGN_OR_RETURN(
      auto tables, CreateTables(options.declaration, ps, options.num_ps,
                                options.table_max_bytes));
  if (!options.checkpoint.has_value()) {
    return ShardState{std::move(store), std::move(tables)};
  }
  const Name name = NameOf(*options.checkpoint);
  const auto found = checkpoints_.find(name);
  if (found == checkpoints_.end() || !found->second.complete) {
    return absl::NotFoundError("no such checkpoint");
  }
  if (IsUnreadable(name, ps)) {
    return absl::UnknownError("a sector cannot be read");
  }
  HOLDFAST_ASSIGN_OR_RETURN(const auto links, LinksOf(found->second));
  const auto arrays = Read(name);
  for (size_t i = 0; i < store->slices().size(); ++i) {
    const StoredSlice& slice = store->slices()[i];
    for (size_t s = 0; s <= store->num_slots(i); ++s) {
      const std::vector<float>& from =
          arrays.at({slice.variable.name(), static_cast<uint32_t>(s)});
      for (size_t chunk = 0; chunk < slice.num_chunks(); ++chunk) {
        const auto first = from.begin() + slice.begin + chunk * kChunkElements;
        std::copy(first, first + slice.chunk_size(chunk),
                  s == 0 ? store->ValuesToLoad(i, chunk)
                         : store->SlotToLoad(i, s - 1, chunk));
      }
    }
  }
  const GlobalStep version(options.checkpoint->step());
  store->SetVersion(version);
  for (const auto& table : tables) {
    HOLDFAST_RETURN_IF_ERROR(LoadRows(links, table.get()));
    table->SetVersion(version);
  }
  return ShardState{std::move(store), std::move(tables)};
}

// ---- Disk ----

Disk::Disk(World* world) : world_(world) { journal_.set_directory_nonce(77); }

std::unique_ptr<Archive> Disk::OpenArchive() {
  return std::make_unique<OpenedArchive>(world_);
}

std::unique_ptr<ShardDisk> Disk::OpenShardDisk(uint32_t ps) {
  return std::make_unique<OpenedShardDisk>(world_, ps);
}

bool Disk::MayBeRead(const Name& name) const {
  return std::none_of(unreadable_.begin(), unreadable_.end(),
                      [&](const auto& drawn) {
                        return drawn.first.first == name && drawn.second;
                      });
}

// Only for a checkpoint that has another before it: with none to fall back on,
// the job fails.
bool Disk::IsUnreadable(const Name& name, uint32_t ps) {
  if (unreadable_of_1000_ == 0) return false;
  const auto [drawn, is_new] = unreadable_.try_emplace({name, ps}, false);
  const auto& kept = journal_.checkpoints();
  if (!is_new || kept.size() < 2 || NameOf(kept[kept.size() - 1]) != name) {
    return drawn->second;
  }
  const Name before = NameOf(kept[kept.size() - 2]);
  if (!IsWhole(name) || !IsWhole(before) || !MayBeRead(before)) return false;
  drawn->second = world_->scheduler()->Happens(unreadable_of_1000_);
  // The one before it must be readable, then.
  for (uint32_t any = 0; drawn->second && any <= kCoordinatorsView; ++any) {
    unreadable_[{before, any}] = false;
  }
  return drawn->second;
}

void Disk::NoteDropped(const proto::Journal& next) {
  if (journal_.checkpoints().empty() || next.checkpoints().empty()) return;
  const Name last = NameOf(*journal_.checkpoints().rbegin());
  if (NameOf(*next.checkpoints().rbegin()) < last) dropped_.insert(last);
}

absl::Status Disk::CheckFiles(const Checkpoint& checkpoint,
                              const proto::Manifest& manifest) const {
  for (int ps = 0; ps < manifest.files_size(); ++ps) {
    const auto file = checkpoint.files.find(ps);
    if (file == checkpoint.files.end() ||
        file->second.file.index_crc32c() != manifest.files(ps).index_crc32c()) {
      return absl::DataLossError(
          absl::StrCat("share ", ps, " is missing or not as it was written"));
    }
  }
  return absl::OkStatus();
}

bool Disk::HasInJournal(const Name& name) const {
  const auto& kept = journal_.checkpoints();
  return std::any_of(kept.begin(), kept.end(),
                     [&](const auto& one) { return NameOf(one) == name; });
}

absl::StatusOr<std::vector<const Disk::Checkpoint*>> Disk::LinksOf(
    const Checkpoint& checkpoint) const {
  std::vector<const Checkpoint*> links = {&checkpoint};
  const auto& chain = checkpoint.manifest.chain();
  for (auto link = chain.rbegin(); link != chain.rend(); ++link) {
    const auto found = checkpoints_.find(NameOf(link->checkpoint()));
    if (found == checkpoints_.end() || !found->second.complete ||
        found->second.manifest_damaged) {
      return absl::DataLossError("a checkpoint that it depends on is missing");
    }
    links.push_back(&found->second);
  }
  for (const Checkpoint* const link : links) {
    absl::Status status = CheckFiles(*link, link->manifest);
    if (!status.ok()) return absl::DataLossError(status.message());
    for (const auto& [ps, file] : link->files) {
      if (file.damaged) return absl::DataLossError("a share is damaged");
    }
  }
  return links;
}

bool Disk::IsWhole(const Name& name) const {
  const auto found = checkpoints_.find(name);
  if (found == checkpoints_.end()) return false;
  const Checkpoint& checkpoint = found->second;
  return checkpoint.complete && !checkpoint.manifest_damaged &&
         checkpoint.manifest.files_size() > 0 && LinksOf(checkpoint).ok();
}

void Disk::Damage(const Name& name, bool manifest) {
  damaged_any_ = true;
  Checkpoint& checkpoint = checkpoints_.at(name);
  if (manifest) {
    checkpoint.manifest_damaged = true;
  } else {
    checkpoint.files.begin()->second.damaged = true;
  }
}

std::map<Disk::Arrays, std::vector<float>> Disk::Read(const Name& name) const {
  std::map<Arrays, std::vector<float>> all;
  const Checkpoint& checkpoint = checkpoints_.at(name);
  const uint32_t num_ps = checkpoint.manifest.files_size();
  for (const auto& [ps, file] : checkpoint.files) {
    if (ps >= num_ps) continue;
    for (const auto& [array, ranges] : file.share) {
      std::vector<float>& values = all[array];
      for (const auto& [begin, from] : ranges) {
        values.resize(std::max(values.size(), begin + from.size()));
        std::copy(from.begin(), from.end(), values.begin() + begin);
      }
    }
  }
  const Job& job = world_->job();
  if (job.tables_alone) {
    // The rows take the place of the variable that they mirror.
    const auto links = LinksOf(checkpoint);
    CHECK(links.ok()) << links.status();
    std::vector<float>& values = all[{job.declaration.variables(0).name(), 0}];
    values.resize(NumRows(job) * RowLength(job));
    for (uint64_t id = 0; id < NumRows(job); ++id) {
      EmbeddingTable::Options options;
      const uint32_t bucket = BucketOfRow(id);
      options.buckets = {bucket, bucket + 1};
      const proto::EmbeddingTable& declared = job.declaration.tables(0);
      const auto table = EmbeddingTable::Create(
          declared, job.declaration.optimizers(declared.optimizer()), options);
      CHECK(table.ok()) << table.status();
      CHECK_EQ(LoadRows(*links, table->get()), absl::OkStatus());
      (*table)->Read({id}, &values[id * RowLength(job)]);
    }
  }
  return all;
}

}  // namespace holdfast::sim
