// SPDX-License-Identifier: Apache-2.0
#include "common/checkpoint/stored_checkpoint.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/crc32c.h"
#include "common/checkpoint/data_file_format.h"
#include "common/checkpoint/encoding.h"
#include "common/tensor/shape.h"

namespace holdfast {
namespace {

constexpr uint64_t kBlockElements = kCheckpointBlockBytes / kElementBytes;

uint64_t BlocksOf(uint64_t elements) {
  return elements / kBlockElements + (elements % kBlockElements != 0);
}

// "variable "w"" or "slot 0 of variable "w"".
std::string WhatIs(absl::string_view variable, uint32_t slot) {
  const std::string name = absl::StrCat("variable \"", variable, "\"");
  return slot == 0 ? name : absl::StrCat("slot ", slot - 1, " of ", name);
}

}  // namespace

// Keeps open only the file that was read last.
class StoredCheckpoint::OneOpenFile {
 public:
  explicit OneOpenFile(FileSystem* file_system) : file_system_(file_system) {}

  // Valid until the next call.
  // Errors: DATA_LOSS when the file no longer exists.
  absl::StatusOr<ReadableFile*> Get(const std::string& path) {
    if (file_ != nullptr && path == path_) return file_.get();
    file_.reset();
    auto opened = file_system_->Open(path);
    if (absl::IsNotFound(opened.status())) {
      return absl::DataLossError(absl::StrCat(path, ": no longer exists"));
    }
    if (!opened.ok()) return opened.status();
    file_ = *std::move(opened);
    path_ = path;
    return file_.get();
  }

 private:
  FileSystem* const file_system_;
  std::string path_;
  std::unique_ptr<ReadableFile> file_;  // null if none is open
};

// A file that is opened whenever it is read.
class StoredCheckpoint::FileOfMany final : public ReadableFile {
 public:
  FileOfMany(std::string path, uint64_t size,
             std::shared_ptr<OneOpenFile> one_open_file)
      : path_(std::move(path)),
        size_(size),
        one_open_file_(std::move(one_open_file)) {}

  uint64_t size() const override { return size_; }
  absl::Status Read(uint64_t offset, uint64_t size, char* into) override {
    const auto file = one_open_file_->Get(path_);
    return file.ok() ? (*file)->Read(offset, size, into) : file.status();
  }

 private:
  const std::string path_;
  const uint64_t size_;
  const std::shared_ptr<OneOpenFile> one_open_file_;
};

absl::StatusOr<std::unique_ptr<StoredCheckpoint>> StoredCheckpoint::Open(
    const CheckpointDirectory& directory, const proto::CheckpointName& name,
    Files files) {
  auto opened =
      std::unique_ptr<StoredCheckpoint>(new StoredCheckpoint(directory, name));
  HOLDFAST_RETURN_IF_ERROR(opened->Start(directory, name, files));
  return opened;
}

absl::Status StoredCheckpoint::Start(const CheckpointDirectory& directory,
                                     const proto::CheckpointName& name,
                                     Files files) {
  HOLDFAST_ASSIGN_OR_RETURN(auto manifest, directory.ReadManifest(name));
  manifest_ = std::move(manifest);
  absl::Status status = CheckNames();
  if (status.ok()) status = TakeDeclaration();
  if (files == Files::kOneAtATime) {
    one_open_file_ = std::make_shared<OneOpenFile>(directory.file_system());
  }
  indices_.resize(manifest_.files_size());
  for (int i = 0; status.ok() && i < manifest_.files_size(); ++i) {
    status = OpenFile(directory.file_system(), files, i);
  }
  return status.ok() ? CheckCoverage() : status;
}

// Checks that the manifest names only earlier checkpoints, in ascending order.
absl::Status StoredCheckpoint::CheckNames() const {
  const proto::CheckpointName* before = nullptr;
  // A later generation may save the step that it began with again.
  const auto is_next = [&](const proto::CheckpointName& name) {
    return before == nullptr ||
           std::make_pair(before->step(), before->generation()) <
               std::make_pair(name.step(), name.generation());
  };
  for (const proto::ChainLink& link : manifest_.chain()) {
    if (!is_next(link.checkpoint())) {
      return Damaged(absl::StrCat("its chain has ",
                                  FolderName(link.checkpoint()), " after ",
                                  FolderName(*before)));
    }
    before = &link.checkpoint();
  }
  if (manifest_.has_previous()) {
    if (before != nullptr &&
        FolderName(*before) != FolderName(manifest_.previous())) {
      return Damaged(absl::StrCat("its chain ends with ", FolderName(*before),
                                  ", but the previous checkpoint is ",
                                  FolderName(manifest_.previous())));
    }
    before = &manifest_.previous();
  } else if (before != nullptr) {
    return Damaged("has a chain, but no previous checkpoint");
  }
  if (is_next(manifest_.name())) return absl::OkStatus();
  return Damaged(absl::StrCat("cannot come after ", FolderName(*before)));
}

absl::Status StoredCheckpoint::TakeDeclaration() {
  for (const proto::Variable& variable : manifest_.declaration().variables()) {
    const auto elements = NumElements(variable.shape());
    if (!elements.ok() ||
        !variables_
             .try_emplace(variable.name(),
                          Variable{&variable, static_cast<uint64_t>(*elements)})
             .second) {
      return Damaged(absl::StrCat(WhatIs(variable.name(), 0),
                                  " is declared twice, or has no shape"));
    }
  }
  for (const proto::EmbeddingTable& table : manifest_.declaration().tables()) {
    if (!tables_.try_emplace(table.name(), &table).second) {
      return Damaged(
          absl::StrCat("table \"", table.name(), "\" is declared twice"));
    }
  }
  return absl::OkStatus();
}

const proto::Variable* StoredCheckpoint::FindVariable(
    absl::string_view name) const {
  const auto found = variables_.find(name);
  return found == variables_.end() ? nullptr : found->second.declared;
}

uint32_t StoredCheckpoint::num_slots(absl::string_view variable) const {
  const auto found = variables_.find(variable);
  if (found == variables_.end() || found->second.by_slot.empty()) return 0;
  return found->second.by_slot.rbegin()->first;
}

const StoredTable* StoredCheckpoint::FindTable(absl::string_view name) const {
  const auto found = tables_.find(name);
  return found == tables_.end() ? nullptr : &found->second;
}

absl::Status StoredCheckpoint::Read(absl::string_view variable, uint32_t slot,
                                    uint64_t begin, absl::Span<float> into) {
  const auto found = variables_.find(variable);
  if (found == variables_.end()) {
    return NotStored(absl::StrCat("no ", WhatIs(variable, slot)));
  }
  const Variable& stored = found->second;
  if (begin > stored.elements || into.size() > stored.elements - begin ||
      slot > num_slots(variable)) {
    return NotStored(absl::StrCat("no elements [", begin, ", ",
                                  begin + into.size(), ") of ",
                                  WhatIs(variable, slot)));
  }
  if (into.empty()) return absl::OkStatus();
  // Extents cover all elements, so the first one needed is the last one that
  // begins at or before `begin`.
  const std::vector<Extent>& extents = stored.by_slot.at(slot);
  auto next = std::upper_bound(extents.begin(), extents.end(), begin,
                               [](uint64_t element, const Extent& extent) {
                                 return element < extent.stored->begin();
                               });
  for (--next; !into.empty(); ++next) {
    const uint64_t from = begin - next->stored->begin();
    const uint64_t count =
        std::min<uint64_t>(into.size(), next->stored->size() - from);
    HOLDFAST_RETURN_IF_ERROR(ReadExtent(*next, from, into.subspan(0, count)));
    begin += count;
    into.remove_prefix(count);
  }
  return absl::OkStatus();
}

absl::Status StoredCheckpoint::VerifyVariables() {
  std::vector<float> scratch(kBlockElements);
  for (size_t file = 0; file < indices_.size(); ++file) {
    for (const proto::StoredExtent& stored : indices_[file].extents()) {
      for (uint64_t from = 0; from < stored.size(); from += kBlockElements) {
        const uint64_t count =
            std::min<uint64_t>(kBlockElements, stored.size() - from);
        const absl::Status read = ReadExtent(
            {&stored, file}, from, absl::MakeSpan(scratch).subspan(0, count));
        if (!read.ok()) return read;
      }
    }
  }
  return absl::OkStatus();
}

std::string StoredCheckpoint::PathOf(size_t file) const {
  return absl::StrCat(folder_, "/", manifest_.files(file).name());
}

absl::Status StoredCheckpoint::Damaged(absl::string_view what) const {
  return absl::DataLossError(absl::StrCat(folder_, ": ", what));
}

absl::Status StoredCheckpoint::NotStored(absl::string_view what) const {
  return absl::NotFoundError(absl::StrCat(folder_, ": holds ", what));
}

// Reads the index of a data file, and adds its extents.
absl::Status StoredCheckpoint::OpenFile(FileSystem* file_system, Files files,
                                        int i) {
  const std::string path = PathOf(i);
  HOLDFAST_ASSIGN_OR_RETURN(auto opened, file_system->Open(path));
  uint64_t end;
  HOLDFAST_RETURN_IF_ERROR(ReadIndex(path, opened.get(), i, &end));
  if (files == Files::kOneAtATime) {
    files_.push_back(
        std::make_unique<FileOfMany>(path, opened->size(), one_open_file_));
  } else {
    files_.push_back(std::move(opened));
  }
  return TakeExtents(path, i, end);
}

// `*end` is set to the offset at which the index begins.
absl::Status StoredCheckpoint::ReadIndex(const std::string& path,
                                         ReadableFile* file, int i,
                                         uint64_t* end) {
  const proto::DataFile& expected = manifest_.files(i);
  const uint64_t size = file->size();
  if (size != expected.size() || size < kMagicBytes + kTrailerBytes) {
    return absl::DataLossError(absl::StrCat(
        path, ": has ", size, " bytes; the manifest says ", expected.size(),
        ", and the minimum is ", kMagicBytes + kTrailerBytes));
  }
  char magic[kMagicBytes];
  HOLDFAST_RETURN_IF_ERROR(ReadExactly(file, path, 0, kMagicBytes, magic));
  HOLDFAST_RETURN_IF_ERROR(
      CheckMagic(path, absl::string_view(magic, kMagicBytes), kDataFileMagic));
  char trailer[kTrailerBytes];
  HOLDFAST_RETURN_IF_ERROR(
      ReadExactly(file, path, size - kTrailerBytes, kTrailerBytes, trailer));
  HOLDFAST_RETURN_IF_ERROR(CheckMagic(
      path,
      absl::string_view(trailer + kTrailerBytes - kMagicBytes, kMagicBytes),
      kDataFileMagic));

  const uint64_t offset = Fixed64At(trailer);
  const uint64_t length = Fixed32At(trailer + 8);
  const uint32_t crc = Fixed32At(trailer + 12);
  if (offset < kMagicBytes || offset > size - kTrailerBytes ||
      length != size - kTrailerBytes - offset) {
    return absl::DataLossError(absl::StrCat(path, ": its index cannot have ",
                                            length, " bytes from byte ", offset,
                                            " on"));
  }
  if (crc != expected.index_crc32c()) {
    return absl::DataLossError(
        absl::StrFormat("%s: its index has CRC32C %08x; the manifest says %08x",
                        path, crc, expected.index_crc32c()));
  }
  proto::DataFileIndex& index = indices_[i];
  HOLDFAST_RETURN_IF_ERROR(
      ReadMessage(file, path, offset, length, crc, &index));
  if (FolderName(index.checkpoint()) != FolderName(manifest_.name()) ||
      index.num_ps() != indices_.size() || index.ps() >= index.num_ps() ||
      expected.name() != DataFileName(index.ps(), index.num_ps())) {
    return absl::DataLossError(
        absl::StrCat(path, ": is the share of ps ", index.ps(), " of ",
                     index.num_ps(), " in ", FolderName(index.checkpoint())));
  }
  *end = offset;
  return absl::OkStatus();
}

// Adds the extents of file `i`, which must be contiguous up to its index at
// `end`.
absl::Status StoredCheckpoint::TakeExtents(const std::string& path, int i,
                                           uint64_t end) {
  uint64_t offset = kMagicBytes;
  for (const proto::StoredExtent& stored : indices_[i].extents()) {
    const auto found = variables_.find(stored.variable());
    if (found == variables_.end() || stored.begin() > found->second.elements ||
        stored.size() > found->second.elements - stored.begin()) {
      return absl::DataLossError(absl::StrCat(
          path, ": holds ", stored.size(), " elements from ", stored.begin(),
          " on of ", WhatIs(stored.variable(), stored.slot()),
          ", which has fewer, or is not declared"));
    }
    if (stored.offset() != offset ||
        static_cast<uint64_t>(stored.block_crc32c_size()) !=
            BlocksOf(stored.size())) {
      return absl::DataLossError(absl::StrCat(
          path, ": its extent of ", WhatIs(stored.variable(), stored.slot()),
          " at byte ", stored.offset(), " does not fit"));
    }
    offset += stored.size() * kElementBytes;
    std::vector<Extent>& extents = found->second.by_slot[stored.slot()];
    if (stored.size() > 0) {
      extents.push_back({&stored, static_cast<size_t>(i)});
    }
  }
  RowExtent::Source source{path, files_[i].get(), end, manifest_.name().step()};
  if (manifest_.has_previous()) {
    source.previous_step = manifest_.previous().step();
  }
  source.has_chain = !manifest_.chain().empty();
  for (const proto::StoredRows& stored : indices_[i].rows()) {
    const auto found = tables_.find(stored.table());
    if (found == tables_.end() || stored.offset() != offset || offset > end) {
      return absl::DataLossError(absl::StrCat(
          path, ": its rows of table \"", stored.table(), "\" at byte ",
          stored.offset(), " do not fit, or the table is not declared"));
    }
    HOLDFAST_ASSIGN_OR_RETURN(const auto bytes,
                              found->second.Take(source, stored));
    offset += bytes;
  }
  if (offset != end) {
    return absl::DataLossError(absl::StrCat(path, ": has extents up to byte ",
                                            offset, ", but its index at byte ",
                                            end));
  }
  return absl::OkStatus();
}

// Checks that each element of values and slots, and each bucket of tables, is
// stored exactly once.
absl::Status StoredCheckpoint::CheckCoverage() {
  for (auto& [name, table] : tables_) {
    const absl::Status checked = table.CheckCoverage();
    if (!checked.ok()) return Damaged(checked.message());
  }
  for (auto& [name, stored] : variables_) {
    stored.by_slot[0];
    uint32_t expected_slot = 0;
    for (auto& [slot, extents] : stored.by_slot) {
      if (slot != expected_slot++) {
        return Damaged(absl::StrCat("lacks ", WhatIs(name, slot - 1)));
      }
      std::sort(extents.begin(), extents.end(),
                [](const Extent& a, const Extent& b) {
                  return a.stored->begin() < b.stored->begin();
                });
      uint64_t end = 0;
      for (const Extent& extent : extents) {
        if (extent.stored->begin() != end) {
          return Damaged(absl::StrCat("lacks elements of ", WhatIs(name, slot),
                                      ", or has them twice:", " between ",
                                      std::min(end, extent.stored->begin()),
                                      " and ",
                                      std::max(end, extent.stored->begin())));
        }
        end += extent.stored->size();
      }
      if (end != stored.elements) {
        return Damaged(absl::StrCat("lacks elements of ", WhatIs(name, slot),
                                    " from ", end, " on, of ",
                                    stored.elements));
      }
    }
  }
  return absl::OkStatus();
}

// Reads elements of an extent, from its element `from` on, block by block.
absl::Status StoredCheckpoint::ReadExtent(const Extent& extent, uint64_t from,
                                          absl::Span<float> into) {
  const proto::StoredExtent& stored = *extent.stored;
  while (!into.empty()) {
    const uint64_t block = from / kBlockElements;
    const uint64_t first = block * kBlockElements;
    const uint64_t size =
        std::min<uint64_t>(kBlockElements, stored.size() - first);
    const uint64_t count = std::min<uint64_t>(into.size(), first + size - from);
    // A whole block is read directly into `into`: it is not copied, and its
    // checksum is computed while the block is still in the cache.
    const bool whole = count == size;
    if (!whole) scratch_.resize(kBlockElements);
    float* const elements = whole ? into.data() : scratch_.data();
    const std::string path = PathOf(extent.file);
    HOLDFAST_RETURN_IF_ERROR(
        ReadExactly(files_[extent.file].get(), path,
                    stored.offset() + first * kElementBytes,
                    size * kElementBytes, reinterpret_cast<char*>(elements)));
    const uint32_t crc = ExtendCrc32c(0, elements, size * kElementBytes);
    if (crc != stored.block_crc32c(block)) {
      return absl::DataLossError(absl::StrFormat(
          "%s: elements [%d, %d) of %s have CRC32C %08x, expected "
          "%08x",
          path, stored.begin() + first, stored.begin() + first + size,
          WhatIs(stored.variable(), stored.slot()), crc,
          stored.block_crc32c(block)));
    }
    if (!whole) {
      std::copy_n(elements + (from - first), count, into.data());
    }
    from += count;
    into.remove_prefix(count);
  }
  return absl::OkStatus();
}

}  // namespace holdfast
