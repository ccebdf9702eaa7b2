// SPDX-License-Identifier: Apache-2.0
#include "common/checkpoint/directory.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/crc32c.h"
#include "common/checkpoint/encoding.h"

namespace holdfast {
namespace {

constexpr char kJournal[] = "JOURNAL";
constexpr char kManifest[] = "MANIFEST";
constexpr char kHistory[] = "HISTORY";
constexpr char kLock[] = "LOCK";
constexpr char kBest[] = "best";
// Suffix of the folder of a checkpoint that was set aside.
constexpr absl::string_view kSetAsideSuffix = ".set-aside";

// The first bytes of a file: its kind, and the version of the format.
constexpr absl::string_view kJournalMagic = "HFjour01";
constexpr absl::string_view kManifestMagic = "HFmani01";
constexpr absl::string_view kHistoryMagic = "HFhist01";

// Magic, length of the message, CRC32C of the message.
constexpr uint64_t kHeaderBytes = kMagicBytes + 4 + 4;

bool SameName(const proto::CheckpointName& a, const proto::CheckpointName& b) {
  return a.generation() == b.generation() && a.step() == b.step();
}

// Whether `name` is a file in a folder, not a path that leads out of it.
bool IsFileName(absl::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         !absl::StrContains(name, '/') && !absl::StrContains(name, '\0');
}

absl::Status RemoveIfThere(FileSystem* file_system, const std::string& path) {
  const absl::Status removed = file_system->Remove(path);
  return absl::IsNotFound(removed) ? absl::OkStatus() : removed;
}

// Writes `message` as the file `name` of `folder`: under a temporary name, then
// renamed.
absl::Status WriteRecord(FileSystem* file_system, const std::string& folder,
                         absl::string_view name, absl::string_view magic,
                         const google::protobuf::MessageLite& message) {
  const std::string path = absl::StrCat(folder, "/", name);
  const absl::StatusOr<std::string> encoded = EncodeMessage(message);
  if (!encoded.ok()) {
    return absl::Status(encoded.status().code(),
                        absl::StrCat(path, ": ", encoded.status().message()));
  }
  std::string bytes(magic);
  AppendFixed32(encoded->size(), &bytes);
  AppendFixed32(Crc32c(*encoded), &bytes);
  bytes += *encoded;

  const std::string aside = absl::StrCat(path, kAsideSuffix);
  HOLDFAST_ASSIGN_OR_RETURN(auto file, file_system->Create(aside));
  absl::Status status = file->Append(bytes);
  if (status.ok()) status = file->Sync();
  if (status.ok()) status = file->Close();
  file.reset();
  if (status.ok()) status = file_system->Rename(aside, path);
  if (status.ok()) return file_system->SyncFolder(folder);
  // A file that cannot be removed is replaced by the next attempt.
  RemoveIfThere(file_system, aside).IgnoreError();
  return status;
}

absl::Status ReadRecord(FileSystem* file_system, const std::string& path,
                        absl::string_view magic,
                        google::protobuf::MessageLite* message) {
  HOLDFAST_ASSIGN_OR_RETURN(auto file, file_system->Open(path));
  const uint64_t size = file->size();
  if (size < kHeaderBytes) {
    return absl::DataLossError(
        absl::StrCat(path, ": has ", size, " bytes, fewer than its header"));
  }
  char header[kHeaderBytes];
  HOLDFAST_RETURN_IF_ERROR(
      ReadExactly(file.get(), path, 0, kHeaderBytes, header));
  HOLDFAST_RETURN_IF_ERROR(
      CheckMagic(path, absl::string_view(header, kMagicBytes), magic));
  const uint64_t length = Fixed32At(header + kMagicBytes);
  const uint32_t crc = Fixed32At(header + kMagicBytes + 4);
  if (size - kHeaderBytes != length) {
    return absl::DataLossError(
        absl::StrCat(path, ": has ", size - kHeaderBytes,
                     " bytes after its header, which specifies ", length));
  }
  return ReadMessage(file.get(), path, kHeaderBytes, length, crc, message);
}

}  // namespace

std::string FolderName(const proto::CheckpointName& name) {
  return absl::StrFormat("g%04d-step%08d", name.generation(), name.step());
}

absl::StatusOr<proto::CheckpointName> ParseFolderName(
    absl::string_view folder) {
  uint64_t generation, step;
  const std::pair<absl::string_view, absl::string_view> numbers =
      absl::StrSplit(folder, absl::MaxSplits("-step", 1));
  if (absl::StartsWith(folder, "g") &&
      absl::SimpleAtoi(numbers.first.substr(1), &generation) &&
      absl::SimpleAtoi(numbers.second, &step)) {
    proto::CheckpointName name;
    name.set_generation(generation);
    name.set_step(step);
    // This excludes signs, spaces and superfluous zeros.
    if (FolderName(name) == folder) return name;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", folder,
                   "\" is not the name of a checkpoint, such as "
                   "\"g0001-step00001000\""));
}

absl::StatusOr<CheckpointDirectory> CheckpointDirectory::Open(
    std::string path, FileSystem* file_system) {
  HOLDFAST_RETURN_IF_ERROR(file_system->MakeFolder(path));
  return CheckpointDirectory(std::move(path), file_system);
}

absl::StatusOr<CheckpointDirectory> CheckpointDirectory::OpenToRead(
    std::string path, FileSystem* file_system) {
  const auto entries = file_system->List(path);
  if (!entries.ok()) return entries.status();
  return CheckpointDirectory(std::move(path), file_system);
}

CheckpointDirectory CheckpointDirectory::Best() const {
  return CheckpointDirectory(absl::StrCat(path_, "/", kBest), file_system_);
}

std::string CheckpointDirectory::Folder(
    const proto::CheckpointName& name) const {
  return absl::StrCat(path_, "/", FolderName(name));
}

absl::StatusOr<std::unique_ptr<FileLock>> CheckpointDirectory::Lock(
    absl::string_view owner) const {
  return file_system_->Lock(absl::StrCat(path_, "/", kLock), owner);
}

absl::StatusOr<proto::Journal> CheckpointDirectory::ReadJournal() const {
  proto::Journal journal;
  HOLDFAST_RETURN_IF_ERROR(ReadRecord(file_system_,
                                      absl::StrCat(path_, "/", kJournal),
                                      kJournalMagic, &journal));
  return journal;
}

absl::Status CheckpointDirectory::WriteJournal(
    const proto::Journal& journal) const {
  return WriteRecord(file_system_, path_, kJournal, kJournalMagic, journal);
}

absl::StatusOr<proto::History> CheckpointDirectory::ReadHistory() const {
  proto::History history;
  HOLDFAST_RETURN_IF_ERROR(ReadRecord(file_system_,
                                      absl::StrCat(path_, "/", kHistory),
                                      kHistoryMagic, &history));
  return history;
}

absl::Status CheckpointDirectory::WriteHistory(
    const proto::History& history) const {
  return WriteRecord(file_system_, path_, kHistory, kHistoryMagic, history);
}

absl::StatusOr<proto::Manifest> CheckpointDirectory::ReadManifest(
    const proto::CheckpointName& name) const {
  const std::string folder = Folder(name);
  const std::string path = absl::StrCat(folder, "/", kManifest);
  proto::Manifest manifest;
  HOLDFAST_RETURN_IF_ERROR(
      ReadRecord(file_system_, path, kManifestMagic, &manifest));
  if (!SameName(manifest.name(), name)) {
    return absl::DataLossError(
        absl::StrCat(path, ": is the manifest of another checkpoint, ",
                     FolderName(manifest.name())));
  }
  std::set<absl::string_view> names;
  for (const proto::DataFile& file : manifest.files()) {
    if (!IsFileName(file.name()) || !names.insert(file.name()).second) {
      return absl::DataLossError(absl::StrCat(
          path, ": lists \"", file.name(),
          "\", which is not the name of a data file, or lists it twice"));
    }
    const std::string data = absl::StrCat(folder, "/", file.name());
    const absl::StatusOr<std::unique_ptr<ReadableFile>> opened =
        file_system_->Open(data);
    if (absl::IsNotFound(opened.status())) {
      return absl::DataLossError(
          absl::StrCat(data, ": is missing, but listed in the manifest"));
    }
    if (!opened.ok()) return opened.status();
    if ((*opened)->size() != file.size()) {
      return absl::DataLossError(absl::StrCat(data, ": has ", (*opened)->size(),
                                              " bytes; the manifest says ",
                                              file.size()));
    }
  }
  return manifest;
}

absl::Status CheckpointDirectory::WriteManifest(
    const proto::Manifest& manifest) const {
  const std::string folder = Folder(manifest.name());
  absl::Status status = file_system_->MakeFolder(folder);
  if (status.ok()) {
    status =
        WriteRecord(file_system_, folder, kManifest, kManifestMagic, manifest);
  }
  return status;
}

absl::StatusOr<std::vector<proto::CheckpointName>> CheckpointDirectory::List()
    const {
  HOLDFAST_ASSIGN_OR_RETURN(const auto entries, file_system_->List(path_));
  std::vector<proto::CheckpointName> names;
  for (const std::string& entry : entries) {
    auto name = ParseFolderName(entry);
    if (name.ok()) names.push_back(*std::move(name));
  }
  // Names with different numbers of digits do not sort by number.
  std::sort(names.begin(), names.end(), [](const auto& a, const auto& b) {
    return std::make_pair(a.generation(), a.step()) <
           std::make_pair(b.generation(), b.step());
  });
  return names;
}

absl::StatusOr<std::string> CheckpointDirectory::SetAside(
    const proto::CheckpointName& name) const {
  const std::string folder = Folder(name);
  const auto entries = file_system_->List(folder);
  if (!entries.ok()) return entries.status();
  std::string aside = absl::StrCat(folder, kSetAsideSuffix);
  absl::Status renamed = file_system_->Rename(folder, aside);
  for (int i = 2; absl::IsAlreadyExists(renamed) && i < 100; ++i) {
    aside = absl::StrCat(folder, kSetAsideSuffix, "-", i);
    renamed = file_system_->Rename(folder, aside);
  }
  if (renamed.ok()) renamed = file_system_->SyncFolder(path_);
  if (!renamed.ok()) return renamed;
  return aside;
}

absl::Status CheckpointDirectory::KeepBest(
    const proto::CheckpointName& name) const {
  HOLDFAST_ASSIGN_OR_RETURN(const auto manifest, ReadManifest(name));
  // The chain comes first, so that a complete checkpoint always has what it
  // needs.
  for (const proto::ChainLink& link : manifest.chain()) {
    const auto needed = ReadManifest(link.checkpoint());
    if (absl::IsNotFound(needed.status())) {
      return absl::DataLossError(
          absl::StrCat(Folder(name), ": needs ", FolderName(link.checkpoint()),
                       ", which is missing: ", needed.status().message()));
    }
    if (!needed.ok()) return needed.status();
    HOLDFAST_RETURN_IF_ERROR(LinkIntoBest(*needed));
  }
  return LinkIntoBest(manifest);
}

absl::Status CheckpointDirectory::LinkIntoBest(
    const proto::Manifest& manifest) const {
  const std::string from = Folder(manifest.name());
  const std::string to = Best().Folder(manifest.name());
  absl::Status status = file_system_->MakeFolder(to);
  const auto link = [&](absl::string_view file) {
    if (!status.ok()) return;
    status = file_system_->Link(absl::StrCat(from, "/", file),
                                absl::StrCat(to, "/", file));
  };
  for (const proto::DataFile& file : manifest.files()) link(file.name());
  if (status.ok()) status = file_system_->SyncFolder(to);
  // The manifest comes last: it makes the checkpoint complete.
  link(kManifest);
  if (status.ok()) status = file_system_->SyncFolder(to);
  return status;
}

absl::Status CheckpointDirectory::Remove(
    const proto::CheckpointName& name) const {
  const std::string folder = Folder(name);
  const auto entries = file_system_->List(folder);
  if (absl::IsNotFound(entries.status())) return absl::OkStatus();
  if (!entries.ok()) return entries.status();
  // Without its manifest the checkpoint no longer counts. Once that is durable,
  // the other files may be removed in any order.
  absl::Status status =
      RemoveIfThere(file_system_, absl::StrCat(folder, "/", kManifest));
  if (status.ok()) status = file_system_->SyncFolder(folder);
  for (const std::string& entry : *entries) {
    if (!status.ok()) return status;
    if (entry == kManifest) continue;
    status = RemoveIfThere(file_system_, absl::StrCat(folder, "/", entry));
  }
  if (status.ok()) status = RemoveIfThere(file_system_, folder);
  if (status.ok()) status = file_system_->SyncFolder(path_);
  return status;
}

}  // namespace holdfast
