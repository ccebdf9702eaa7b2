#include "tests/simulation/simulated_disk.h"

#include <algorithm>
#include <deque>
#include <optional>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

namespace holdfast {
namespace {

constexpr absl::Duration kJournalWrite = absl::Milliseconds(100);
// For the disk to let go of what nobody needs.
constexpr absl::Duration kSoon = absl::Milliseconds(100);
// In place of a ps.
constexpr uint32_t kCoordinatorsView = 8;

// A queue of work, of which one is under way: each has its effect after a
// while, and is answered after another. Nothing happens once it is gone.
class Queue {
 public:
  Queue(Scheduler* scheduler, absl::Duration longest)
      : scheduler_(scheduler), longest_(longest) {}

  // `work` has the effect, and gives what tells of it.
  void Add(std::function<std::function<void()>()> work) {
    work_.push_back(std::move(work));
    if (work_.size() == 1) Begin();
  }

  // What is under way ends soon.
  void Hurry() {
    hurries_ = !work_.empty();
    if (next_) After(std::exchange(next_, nullptr), kSoon);
  }

 private:
  void After(std::function<void()> event, absl::Duration longest) {
    next_ = std::move(event);
    scheduler_->After(
        scheduler_->RandomDuration(longest),
        [this, number = ++number_, alive = std::weak_ptr<bool>(alive_)] {
          if (alive.expired() || number != number_) return;
          std::exchange(next_, nullptr)();
        });
  }
  void Begin() {
    After(
        [this] {
          const std::function<void()> tell = work_.front()();
          After(
              [this, tell] {
                work_.pop_front();
                hurries_ = false;
                if (!work_.empty()) Begin();
                tell();
              },
              hurries_ ? kSoon : longest_);
        },
        longest_);
  }

  Scheduler* const scheduler_;
  const absl::Duration longest_;
  std::deque<std::function<std::function<void()>()>> work_;
  // What is to happen next, and how many have been before it.
  std::function<void()> next_;
  uint64_t number_ = 0;
  // The work that is under way.
  bool hurries_ = false;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

// For lambdas that have to be copied.
template <typename Response>
std::shared_ptr<Reply<Response>> Shared(Reply<Response> reply) {
  return std::make_shared<Reply<Response>>(std::move(reply));
}

// Of all bytes.
uint32_t Checksum(const SimulatedDisk::Share& share) {
  std::string bytes;
  for (const auto& [array, stretches] : share) {
    for (const auto& [begin, values] : stretches) {
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

// ---- The coordinator's ----

class SimulatedDisk::OpenedArchive : public Archive {
 public:
  explicit OpenedArchive(SimulatedDisk* disk)
      : disk_(disk), queue_(disk->scheduler_, kJournalWrite) {}

  void WriteJournal(const proto::Journal& journal, Reply<Done> reply) override {
    queue_.Add([=, reply = Shared(std::move(reply))] {
      return Write(reply, [=] {
        disk_->NoteDropped(journal);
        disk_->journal_ = journal;
        if (disk_->on_journal) disk_->on_journal(journal);
      });
    });
  }

  void WriteManifest(const proto::Manifest& manifest,
                     Reply<Done> reply) override {
    queue_.Add([=, reply = Shared(std::move(reply))] {
      return Write(reply, [=] {
        Checkpoint& checkpoint = disk_->checkpoints_[NameOf(manifest.name())];
        checkpoint.manifest = manifest;
        checkpoint.complete = true;
        if (disk_->on_manifest) disk_->on_manifest(manifest);
      });
    });
  }

  void ReadManifest(const proto::CheckpointName& name,
                    Reply<proto::Manifest> reply) override {
    queue_.Add([=, reply = Shared(std::move(reply))] {
      const absl::StatusOr<proto::Manifest> read = Read(NameOf(name));
      return [=] { (*reply)(read); };
    });
  }

  void SetAside(const proto::CheckpointName& name) override {
    queue_.Add([this, name = NameOf(name)] {
      auto moved = disk_->checkpoints_.extract(name);
      if (!moved.empty()) disk_->aside_.insert(std::move(moved));
      return [] {};
    });
  }

  void RemoveOthers(const proto::CheckpointName* under_way) override {
    std::optional<Name> spared;
    if (under_way != nullptr) spared = NameOf(*under_way);
    queue_.Add([=] {
      std::map<Name, Checkpoint>& all = disk_->checkpoints_;
      for (auto it = all.begin(); it != all.end();) {
        const bool named = std::any_of(
            disk_->journal_.checkpoints().begin(),
            disk_->journal_.checkpoints().end(),
            [&](const auto& name) { return NameOf(name) == it->first; });
        if (named || it->first == spared) {
          ++it;
          continue;
        }
        if (disk_->dropped_.count(it->first) > 0) disk_->destroyed_any_ = true;
        it = all.erase(it);
      }
      return [] {};
    });
  }

 private:
  // A write that fails may have done its work.
  std::function<void()> Write(std::shared_ptr<Reply<Done>> reply,
                              const std::function<void()>& write) {
    const absl::Status status = disk_->WriteMishap();
    if (status.ok() || disk_->scheduler_->Random(2) == 0) write();
    return
        [=] { (*reply)(status.ok() ? absl::StatusOr<Done>(Done()) : status); };
  }

  absl::StatusOr<proto::Manifest> Read(const Name& name) {
    if (absl::Status status = disk_->ReadMishap(); !status.ok()) return status;
    const auto found = disk_->checkpoints_.find(name);
    if (found == disk_->checkpoints_.end() || !found->second.complete) {
      return absl::NotFoundError("no such checkpoint");
    }
    if (disk_->IsUnreadable(name, kCoordinatorsView)) {
      return absl::UnknownError("the manifest cannot be read");
    }
    if (found->second.manifest_damaged) {
      return absl::DataLossError("the manifest is damaged");
    }
    absl::Status status =
        disk_->CheckFiles(found->second, found->second.manifest);
    if (!status.ok()) return status;
    return found->second.manifest;
  }

  SimulatedDisk* const disk_;
  Queue queue_;
};

// ---- A shard's ----

class SimulatedDisk::OpenedShardDisk : public ShardDisk {
 public:
  OpenedShardDisk(SimulatedDisk* disk, uint32_t ps)
      : disk_(disk),
        ps_(ps),
        saves_(disk->scheduler_, disk->options_.longest_write / 2),
        loads_(disk->scheduler_, disk->options_.longest_write / 2) {}

  void Save(const proto::CheckpointName& name, uint32_t num_ps,
            StoreSnapshot snapshot, Reply<proto::DataFile> reply) override {
    auto held = std::make_shared<StoreSnapshot>(std::move(snapshot));
    const uint64_t number = ++save_number_;
    saving_ = disk_->scheduler_->Now();
    saves_.Add([=, reply = Shared(std::move(reply))] {
      const absl::Status status = disk_->WriteMishap();
      absl::StatusOr<proto::DataFile> saved = proto::DataFile();
      const bool abandoned = number != save_number_;
      if (!abandoned && (status.ok() || disk_->scheduler_->Random(2) == 0)) {
        saved = Write(NameOf(name), *held);
      }
      if (!status.ok()) saved = status;
      if (abandoned) saved = absl::AbortedError("nobody needs it");
      *held = StoreSnapshot();
      return [=] { (*reply)(saved); };
    });
  }

  void AbandonSave() override {
    ++save_number_;
    saves_.Hurry();
  }
  // A byte each millisecond.
  proto::DiskProgress SaveProgress() const override { return Since(saving_); }
  proto::DiskProgress LoadProgress() const override { return Since(loading_); }

  void Load(const LoadOptions& options,
            Reply<std::unique_ptr<DenseStore>> reply) override {
    const uint64_t number = ++load_number_;
    loading_ = disk_->scheduler_->Now();
    loads_.Hurry();
    loads_.Add([=, reply = Shared(std::move(reply))] {
      auto loaded =
          std::make_shared<absl::StatusOr<std::unique_ptr<DenseStore>>>(
              number == load_number_
                  ? Read(options)
                  : absl::AbortedError("another load has taken its place"));
      return [=] { (*reply)(std::move(*loaded)); };
    });
    // First values are not read.
    if (!options.checkpoint.has_value()) loads_.Hurry();
  }

 private:
  proto::DiskProgress Since(absl::Time begun) const {
    proto::DiskProgress progress;
    progress.set_bytes_done(
        absl::ToInt64Milliseconds(disk_->scheduler_->Now() - begun));
    progress.set_bytes_total(progress.bytes_done() + 1);
    return progress;
  }
  proto::DataFile Write(const Name& name, const StoreSnapshot& snapshot) {
    File& file = disk_->checkpoints_[name].files[ps_];
    file = File();
    file.file.set_name(absl::StrCat("ps-", ps_));
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
    file.file.set_index_crc32c(Checksum(file.share));
    return file.file;
  }

  absl::StatusOr<std::unique_ptr<DenseStore>> Read(const LoadOptions& options) {
    if (options.directory_nonce != disk_->journal_.directory_nonce()) {
      return absl::FailedPreconditionError("another directory");
    }
    if (absl::Status status = disk_->ReadMishap(); !status.ok()) return status;
    auto store = DenseStore::Create(options.declaration, options.slices, ps_,
                                    options.slots_by_optimizer);
    if (!store.ok() || !options.checkpoint.has_value()) return store;
    const Name name = NameOf(*options.checkpoint);
    const auto found = disk_->checkpoints_.find(name);
    if (found == disk_->checkpoints_.end() || !found->second.complete) {
      return absl::NotFoundError("no such checkpoint");
    }
    if (disk_->IsUnreadable(name, ps_)) {
      return absl::UnknownError("a sector cannot be read");
    }
    absl::Status status =
        disk_->CheckFiles(found->second, found->second.manifest);
    if (!status.ok()) return status;
    for (const auto& [ps, file] : found->second.files) {
      if (file.damaged) return absl::DataLossError("a share is damaged");
    }
    const auto arrays = disk_->Read(name);
    for (size_t i = 0; i < (*store)->slices().size(); ++i) {
      const StoredSlice& slice = (*store)->slices()[i];
      for (size_t s = 0; s <= (*store)->num_slots(i); ++s) {
        const std::vector<float>& from =
            arrays.at({slice.variable.name(), static_cast<uint32_t>(s)});
        for (size_t chunk = 0; chunk < slice.num_chunks(); ++chunk) {
          const auto first =
              from.begin() + slice.begin + chunk * kChunkElements;
          std::copy(first, first + slice.chunk_size(chunk),
                    s == 0 ? (*store)->ValuesToLoad(i, chunk)
                           : (*store)->SlotToLoad(i, s - 1, chunk));
        }
      }
    }
    (*store)->SetVersion(GlobalStep(options.checkpoint->step()));
    return store;
  }

  SimulatedDisk* const disk_;
  const uint32_t ps_;
  Queue saves_;
  Queue loads_;
  uint64_t load_number_ = 0;
  uint64_t save_number_ = 0;
  // When the last of each began.
  absl::Time saving_;
  absl::Time loading_;
};

// ---- All ----

SimulatedDisk::SimulatedDisk(Scheduler* scheduler, const Options& options)
    : scheduler_(scheduler), options_(options) {
  journal_.set_directory_nonce(1 + scheduler->Random(1000));
}

std::unique_ptr<Archive> SimulatedDisk::OpenArchive() {
  return std::make_unique<OpenedArchive>(this);
}

std::unique_ptr<ShardDisk> SimulatedDisk::OpenShardDisk(uint32_t ps) {
  return std::make_unique<OpenedShardDisk>(this, ps);
}

absl::Status SimulatedDisk::ReadMishap() {
  if (!scheduler_->Happens(options_.failing)) return absl::OkStatus();
  return absl::UnavailableError("input/output");
}

bool SimulatedDisk::MayBeRead(const Name& name) const {
  return std::none_of(unreadable_.begin(), unreadable_.end(),
                      [&](const auto& drawn) {
                        return drawn.first.first == name && drawn.second;
                      });
}

// Only where another stands before it: with none to fall back on the job fails.
bool SimulatedDisk::IsUnreadable(const Name& name, uint32_t ps) {
  const auto [drawn, is_new] = unreadable_.try_emplace({name, ps}, false);
  const auto& kept = journal_.checkpoints();
  if (!is_new || options_.unreadable == 0 || kept.size() < 2 ||
      NameOf(kept[kept.size() - 1]) != name) {
    return drawn->second;
  }
  const Name before = NameOf(kept[kept.size() - 2]);
  if (!IsWhole(name) || !IsWhole(before) || !MayBeRead(before)) return false;
  drawn->second = scheduler_->Happens(options_.unreadable);
  // That one has to be read, then.
  for (uint32_t any = 0; drawn->second && any <= kCoordinatorsView; ++any) {
    unreadable_[{before, any}] = false;
  }
  return drawn->second;
}

void SimulatedDisk::NoteDropped(const proto::Journal& next) {
  if (journal_.checkpoints().empty() || next.checkpoints().empty()) return;
  const Name last = NameOf(*journal_.checkpoints().rbegin());
  if (NameOf(*next.checkpoints().rbegin()) < last) dropped_.insert(last);
}

absl::Status SimulatedDisk::WriteMishap() {
  if (!scheduler_->Happens(options_.failing)) return absl::OkStatus();
  if (scheduler_->Random(2) == 0) return absl::UnavailableError("input/output");
  return absl::ResourceExhaustedError("no space is left");
}

absl::Status SimulatedDisk::CheckFiles(const Checkpoint& checkpoint,
                                       const proto::Manifest& manifest) const {
  for (int ps = 0; ps < manifest.files_size(); ++ps) {
    const auto file = checkpoint.files.find(ps);
    if (file == checkpoint.files.end() ||
        file->second.file.index_crc32c() != manifest.files(ps).index_crc32c()) {
      return absl::DataLossError(
          absl::StrCat("share ", ps, " is not there as it was written"));
    }
  }
  return absl::OkStatus();
}

bool SimulatedDisk::IsWhole(const Name& name) const {
  const auto found = checkpoints_.find(name);
  if (found == checkpoints_.end()) return false;
  const Checkpoint& checkpoint = found->second;
  return checkpoint.complete && !checkpoint.manifest_damaged &&
         CheckFiles(checkpoint, checkpoint.manifest).ok() &&
         std::none_of(checkpoint.files.begin(), checkpoint.files.end(),
                      [](const auto& file) { return file.second.damaged; });
}

void SimulatedDisk::Damage(const Name& name, bool manifest) {
  Checkpoint& checkpoint = checkpoints_.at(name);
  if (manifest) {
    checkpoint.manifest_damaged = true;
  } else {
    checkpoint.files.begin()->second.damaged = true;
  }
}

std::map<SimulatedDisk::Arrays, std::vector<float>> SimulatedDisk::Read(
    const Name& name) const {
  std::map<Arrays, std::vector<float>> all;
  const Checkpoint& checkpoint = checkpoints_.at(name);
  const uint32_t num_ps = checkpoint.manifest.files_size();
  for (const auto& [ps, file] : checkpoint.files) {
    if (ps >= num_ps) continue;
    for (const auto& [array, stretches] : file.share) {
      std::vector<float>& values = all[array];
      for (const auto& [begin, from] : stretches) {
        values.resize(std::max(values.size(), begin + from.size()));
        std::copy(from.begin(), from.end(), values.begin() + begin);
      }
    }
  }
  return all;
}

}  // namespace holdfast
