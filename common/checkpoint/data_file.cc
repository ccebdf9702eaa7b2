#include "common/checkpoint/data_file.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "absl/base/config.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/checkpoint/crc32c.h"
#include "common/checkpoint/encoding.h"
#include "common/shape.h"

namespace holdfast {

#if !defined(ABSL_IS_LITTLE_ENDIAN)
#error "Elements are written as they lie in memory: that must be little-endian."
#endif

namespace {

constexpr absl::string_view kMagic = "HFdata01";
// Offset and length of the index, its CRC32C, magic.
constexpr uint64_t kTrailerBytes = 8 + 4 + 4 + kMagicBytes;

// What is smaller is gathered before it is written.
constexpr size_t kBufferBytes = size_t{1} << 20;

constexpr uint64_t kElementBytes = sizeof(float);
constexpr uint64_t kBlockElements = kCheckpointBlockBytes / kElementBytes;
static_assert(kCheckpointBlockBytes % kElementBytes == 0);

uint64_t BlocksOf(uint64_t elements) {
  return elements / kBlockElements + (elements % kBlockElements != 0);
}

std::string DataFileName(uint32_t ps, uint32_t num_ps) {
  return absl::StrFormat("ps-%04d-of-%04d", ps, num_ps);
}

// "variable "w"" or "slot 0 of variable "w"".
std::string WhatIs(absl::string_view variable, uint32_t slot) {
  const std::string name = absl::StrCat("variable \"", variable, "\"");
  return slot == 0 ? name : absl::StrCat("slot ", slot - 1, " of ", name);
}

class Writer final : public DataFileWriter {
 public:
  Writer(FileSystem* file_system, std::string folder,
         const proto::CheckpointName& name, uint32_t ps, uint32_t num_ps)
      : file_system_(file_system),
        folder_(std::move(folder)),
        name_(DataFileName(ps, num_ps)),
        aside_(absl::StrCat(folder_, "/", name_, kAsideSuffix)) {
    *index_.mutable_checkpoint() = name;
    index_.set_ps(ps);
    index_.set_num_ps(num_ps);
  }

  ~Writer() override {
    if (file_ == nullptr) return;
    file_.reset();
    // What cannot be removed is replaced by the next attempt.
    file_system_->Remove(aside_).IgnoreError();
  }

  absl::Status Start() {
    absl::Status made = file_system_->MakeFolder(folder_);
    if (!made.ok()) return made;
    auto file = file_system_->Create(aside_);
    if (!file.ok()) return file.status();
    file_ = *std::move(file);
    buffer_.reserve(kBufferBytes);
    return Keep(Write(kMagic));
  }

  absl::Status Begin(absl::string_view variable, uint32_t slot, uint64_t begin,
                     uint64_t size) override {
    if (!Ready()) return status_;
    proto::StoredStretch* stretch = index_.add_stretches();
    stretch->set_variable(std::string(variable));
    stretch->set_slot(slot);
    stretch->set_begin(begin);
    stretch->set_size(size);
    stretch->set_offset(written_ + buffer_.size());
    missing_ = size;
    in_block_ = 0;
    crc_ = 0;
    return absl::OkStatus();
  }

  absl::Status Append(absl::Span<const float> elements) override {
    if (!status_.ok()) return status_;
    if (elements.size() > missing_) {
      return Keep(absl::InternalError(
          absl::StrCat(aside_, ": ", elements.size(), " elements where ",
                       missing_, " are left of the stretch")));
    }
    missing_ -= elements.size();
    while (!elements.empty()) {
      const size_t count =
          std::min<size_t>(elements.size(), kBlockElements - in_block_);
      const absl::string_view bytes(
          reinterpret_cast<const char*>(elements.data()),
          count * kElementBytes);
      // Right before they are copied: they come from memory once.
      crc_ = ExtendCrc32c(crc_, bytes.data(), bytes.size());
      const absl::Status written = Keep(Write(bytes));
      if (!written.ok()) return written;
      in_block_ += count;
      elements.remove_prefix(count);
      if (in_block_ == kBlockElements || (missing_ == 0 && elements.empty())) {
        index_.mutable_stretches()->rbegin()->add_block_crc32c(crc_);
        in_block_ = 0;
        crc_ = 0;
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<proto::DataFile> Finish() override {
    if (!Ready()) return status_;
    const auto file = DoFinish();
    if (!file.ok()) return Keep(file.status());
    Keep(absl::InternalError(absl::StrCat(aside_, ": is finished")))
        .IgnoreError();
    return file;
  }

 private:
  // Keeps what went wrong, for all calls after.
  absl::Status Keep(absl::Status status) {
    if (!status.ok()) status_ = status;
    return status;
  }

  // Nothing went wrong, and no stretch is open.
  bool Ready() {
    if (status_.ok() && missing_ > 0) {
      Keep(absl::InternalError(absl::StrCat(aside_, ": the stretch lacks ",
                                            missing_, " elements")))
          .IgnoreError();
    }
    return status_.ok();
  }

  absl::Status Write(absl::string_view bytes) {
    if (buffer_.size() + bytes.size() > kBufferBytes) {
      const absl::Status flushed = Flush();
      if (!flushed.ok()) return flushed;
    }
    if (bytes.size() < kBufferBytes) {
      buffer_.append(bytes.data(), bytes.size());
      return absl::OkStatus();
    }
    written_ += bytes.size();
    return file_->Append(bytes);
  }

  absl::Status Flush() {
    if (buffer_.empty()) return absl::OkStatus();
    written_ += buffer_.size();
    const absl::Status appended = file_->Append(buffer_);
    buffer_.clear();
    return appended;
  }

  absl::StatusOr<proto::DataFile> DoFinish() {
    const absl::StatusOr<std::string> index = EncodeMessage(index_);
    if (!index.ok()) return index.status();
    const uint32_t crc = Crc32c(*index);
    std::string trailer;
    AppendFixed64(written_ + buffer_.size(), &trailer);
    AppendFixed32(index->size(), &trailer);
    AppendFixed32(crc, &trailer);
    trailer.append(kMagic.data(), kMagic.size());

    absl::Status status = Write(*index);
    if (status.ok()) status = Write(trailer);
    if (status.ok()) status = Flush();
    if (status.ok()) status = file_->Sync();
    if (status.ok()) status = file_->Close();
    if (status.ok()) {
      status = file_system_->Rename(aside_, absl::StrCat(folder_, "/", name_));
    }
    if (!status.ok()) return status;
    file_.reset();
    status = file_system_->SyncFolder(folder_);
    if (!status.ok()) return status;

    proto::DataFile file;
    file.set_name(name_);
    file.set_size(written_);
    file.set_index_crc32c(crc);
    return file;
  }

  FileSystem* const file_system_;
  const std::string folder_;
  const std::string name_;
  const std::string aside_;
  std::unique_ptr<WritableFile> file_;  // null before and after it has `aside_`
  absl::Status status_;
  proto::DataFileIndex index_;
  // Of the last stretch: elements that are to come, elements in its last block
  // so far, and their checksum.
  uint64_t missing_ = 0;
  uint64_t in_block_ = 0;
  uint32_t crc_ = 0;
  // Bytes given to the file; those after them.
  uint64_t written_ = 0;
  std::string buffer_;
};

// A stretch, and the file that it is in.
struct Stretch {
  const proto::StoredStretch* stored;
  size_t file;
};

class Reader final : public CheckpointReader {
 public:
  Reader(const CheckpointDirectory& directory,
         const proto::CheckpointName& name)
      : folder_(directory.Folder(name)) {}

  absl::Status Start(const CheckpointDirectory& directory,
                     const proto::CheckpointName& name) {
    auto manifest = directory.ReadManifest(name);
    if (!manifest.ok()) return manifest.status();
    manifest_ = *std::move(manifest);
    for (const proto::Variable& variable :
         manifest_.declaration().variables()) {
      const auto elements = NumElements(variable.shape());
      if (!elements.ok() ||
          !variables_
               .try_emplace(variable.name(),
                            Stored{&variable, static_cast<uint64_t>(*elements)})
               .second) {
        return Damaged(absl::StrCat(WhatIs(variable.name(), 0),
                                    " is declared twice, or has no shape"));
      }
    }
    indices_.resize(manifest_.files_size());
    for (int i = 0; i < manifest_.files_size(); ++i) {
      const absl::Status opened = OpenFile(*directory.file_system(), i);
      if (!opened.ok()) return opened;
    }
    return CheckCoverage();
  }

  const proto::Manifest& manifest() const override { return manifest_; }

  const proto::Variable* FindVariable(absl::string_view name) const override {
    const auto found = variables_.find(name);
    return found == variables_.end() ? nullptr : found->second.declared;
  }

  uint32_t num_slots(absl::string_view variable) const override {
    const auto found = variables_.find(variable);
    if (found == variables_.end() || found->second.by_slot.empty()) return 0;
    return found->second.by_slot.rbegin()->first;
  }

  absl::Status Read(absl::string_view variable, uint32_t slot, uint64_t begin,
                    absl::Span<float> into) override {
    const auto found = variables_.find(variable);
    if (found == variables_.end()) {
      return NotStored(absl::StrCat("no ", WhatIs(variable, slot)));
    }
    const Stored& stored = found->second;
    if (begin > stored.elements || into.size() > stored.elements - begin ||
        slot > num_slots(variable)) {
      return NotStored(absl::StrCat("no elements [", begin, ", ",
                                    begin + into.size(), ") of ",
                                    WhatIs(variable, slot)));
    }
    if (into.empty()) return absl::OkStatus();
    // Stretches cover all elements: the first that is needed is the last that
    // begins at or before `begin`.
    const std::vector<Stretch>& stretches = stored.by_slot.at(slot);
    auto next = std::upper_bound(stretches.begin(), stretches.end(), begin,
                                 [](uint64_t element, const Stretch& stretch) {
                                   return element < stretch.stored->begin();
                                 });
    for (--next; !into.empty(); ++next) {
      const uint64_t from = begin - next->stored->begin();
      const uint64_t count =
          std::min<uint64_t>(into.size(), next->stored->size() - from);
      const absl::Status read =
          ReadStretch(*next, from, into.subspan(0, count));
      if (!read.ok()) return read;
      begin += count;
      into.remove_prefix(count);
    }
    return absl::OkStatus();
  }

  absl::Status Verify() override {
    std::vector<float> scratch(kBlockElements);
    for (size_t file = 0; file < indices_.size(); ++file) {
      for (const proto::StoredStretch& stored : indices_[file].stretches()) {
        for (uint64_t from = 0; from < stored.size(); from += kBlockElements) {
          const uint64_t count =
              std::min<uint64_t>(kBlockElements, stored.size() - from);
          const absl::Status read = ReadStretch(
              {&stored, file}, from, absl::MakeSpan(scratch).subspan(0, count));
          if (!read.ok()) return read;
        }
      }
    }
    return absl::OkStatus();
  }

 private:
  struct Stored {
    const proto::Variable* declared;
    uint64_t elements;
    // Stretches with elements, in their order. A variable without elements has
    // slots, and no stretches in them.
    std::map<uint32_t, std::vector<Stretch>> by_slot;
  };

  std::string PathOf(size_t file) const {
    return absl::StrCat(folder_, "/", manifest_.files(file).name());
  }

  absl::Status Damaged(absl::string_view what) const {
    return absl::DataLossError(absl::StrCat(folder_, ": ", what));
  }

  absl::Status NotStored(absl::string_view what) const {
    return absl::NotFoundError(absl::StrCat(folder_, ": holds ", what));
  }

  // Reads the index of a data file, and takes its stretches.
  absl::Status OpenFile(FileSystem& file_system, int i) {
    const proto::DataFile& expected = manifest_.files(i);
    const std::string path = PathOf(i);
    auto opened = file_system.Open(path);
    if (!opened.ok()) return opened.status();
    ReadableFile* const file = opened->get();
    files_.push_back(*std::move(opened));

    const uint64_t size = file->size();
    if (size != expected.size() || size < kMagicBytes + kTrailerBytes) {
      return absl::DataLossError(absl::StrCat(
          path, ": has ", size, " bytes, in the manifest ", expected.size(),
          ", at least ", kMagicBytes + kTrailerBytes));
    }
    char magic[kMagicBytes];
    absl::Status status = ReadExactly(file, path, 0, kMagicBytes, magic);
    if (!status.ok()) return status;
    status = CheckMagic(path, absl::string_view(magic, kMagicBytes), kMagic);
    if (!status.ok()) return status;
    char trailer[kTrailerBytes];
    status =
        ReadExactly(file, path, size - kTrailerBytes, kTrailerBytes, trailer);
    if (!status.ok()) return status;
    status = CheckMagic(
        path,
        absl::string_view(trailer + kTrailerBytes - kMagicBytes, kMagicBytes),
        kMagic);
    if (!status.ok()) return status;

    const uint64_t offset = Fixed64At(trailer);
    const uint64_t length = Fixed32At(trailer + 8);
    const uint32_t crc = Fixed32At(trailer + 12);
    if (offset < kMagicBytes || offset > size - kTrailerBytes ||
        length != size - kTrailerBytes - offset) {
      return absl::DataLossError(absl::StrCat(path, ": its index cannot have ",
                                              length, " bytes from byte ",
                                              offset, " on"));
    }
    if (crc != expected.index_crc32c()) {
      return absl::DataLossError(absl::StrFormat(
          "%s: its index has the CRC32C %08x, in the manifest %08x", path, crc,
          expected.index_crc32c()));
    }
    proto::DataFileIndex& index = indices_[i];
    status = ReadMessage(file, path, offset, length, crc, &index);
    if (!status.ok()) return status;
    if (FolderName(index.checkpoint()) != FolderName(manifest_.name()) ||
        index.num_ps() != indices_.size() || index.ps() >= index.num_ps() ||
        expected.name() != DataFileName(index.ps(), index.num_ps())) {
      return absl::DataLossError(
          absl::StrCat(path, ": is the share of ps ", index.ps(), " of ",
                       index.num_ps(), " in ", FolderName(index.checkpoint())));
    }
    return TakeStretches(path, i, offset);
  }

  // The stretches of file `i`, whose index is at `end`, follow each other.
  absl::Status TakeStretches(const std::string& path, int i, uint64_t end) {
    uint64_t offset = kMagicBytes;
    for (const proto::StoredStretch& stored : indices_[i].stretches()) {
      const auto found = variables_.find(stored.variable());
      if (found == variables_.end() ||
          stored.begin() > found->second.elements ||
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
            path, ": its stretch of ", WhatIs(stored.variable(), stored.slot()),
            " at byte ", stored.offset(), " does not fit"));
      }
      offset += stored.size() * kElementBytes;
      std::vector<Stretch>& stretches = found->second.by_slot[stored.slot()];
      if (stored.size() > 0) {
        stretches.push_back({&stored, static_cast<size_t>(i)});
      }
    }
    if (offset != end) {
      return absl::DataLossError(
          absl::StrCat(path, ": has stretches up to byte ", offset,
                       ", and its index at byte ", end));
    }
    return absl::OkStatus();
  }

  // Values and slots are there, each element once.
  absl::Status CheckCoverage() {
    for (auto& [name, stored] : variables_) {
      stored.by_slot[0];
      uint32_t expected_slot = 0;
      for (auto& [slot, stretches] : stored.by_slot) {
        if (slot != expected_slot++) {
          return Damaged(absl::StrCat("lacks ", WhatIs(name, slot - 1)));
        }
        std::sort(stretches.begin(), stretches.end(),
                  [](const Stretch& a, const Stretch& b) {
                    return a.stored->begin() < b.stored->begin();
                  });
        uint64_t end = 0;
        for (const Stretch& stretch : stretches) {
          if (stretch.stored->begin() != end) {
            return Damaged(
                absl::StrCat("lacks elements of ", WhatIs(name, slot),
                             ", or has them twice:", " between ",
                             std::min(end, stretch.stored->begin()), " and ",
                             std::max(end, stretch.stored->begin())));
          }
          end += stretch.stored->size();
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

  // Elements of a stretch, from its own `from` on, block by block.
  absl::Status ReadStretch(const Stretch& stretch, uint64_t from,
                           absl::Span<float> into) {
    const proto::StoredStretch& stored = *stretch.stored;
    while (!into.empty()) {
      const uint64_t block = from / kBlockElements;
      const uint64_t first = block * kBlockElements;
      const uint64_t size =
          std::min<uint64_t>(kBlockElements, stored.size() - first);
      const uint64_t count =
          std::min<uint64_t>(into.size(), first + size - from);
      // A whole block is read to where it belongs: no copy, and a checksum of
      // what the cache still has.
      const bool whole = count == size;
      if (!whole) scratch_.resize(kBlockElements);
      float* const elements = whole ? into.data() : scratch_.data();
      const std::string path = PathOf(stretch.file);
      const absl::Status read =
          ReadExactly(files_[stretch.file].get(), path,
                      stored.offset() + first * kElementBytes,
                      size * kElementBytes, reinterpret_cast<char*>(elements));
      if (!read.ok()) return read;
      const uint32_t crc = ExtendCrc32c(0, elements, size * kElementBytes);
      if (crc != stored.block_crc32c(block)) {
        return absl::DataLossError(absl::StrFormat(
            "%s: elements [%d, %d) of %s have the CRC32C %08x, and should have "
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

  const std::string folder_;
  proto::Manifest manifest_;
  std::map<std::string, Stored, std::less<>> variables_;
  // As the manifest's.
  std::vector<std::unique_ptr<ReadableFile>> files_;
  std::vector<proto::DataFileIndex> indices_;
  // For a block of which a part is wanted.
  std::vector<float> scratch_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DataFileWriter>> DataFileWriter::Create(
    const CheckpointDirectory& directory, const proto::CheckpointName& name,
    uint32_t ps, uint32_t num_ps) {
  auto writer = std::make_unique<Writer>(
      directory.file_system(), directory.Folder(name), name, ps, num_ps);
  const absl::Status started = writer->Start();
  if (!started.ok()) return started;
  return writer;
}

absl::StatusOr<std::unique_ptr<CheckpointReader>> CheckpointReader::Open(
    const CheckpointDirectory& directory, const proto::CheckpointName& name) {
  auto reader = std::make_unique<Reader>(directory, name);
  const absl::Status started = reader->Start(directory, name);
  if (!started.ok()) return started;
  return reader;
}

absl::StatusOr<std::unique_ptr<CheckpointReader>> CheckpointReader::OpenFolder(
    const std::string& folder, FileSystem* file_system) {
  std::filesystem::path path(folder);
  if (!path.has_filename()) path = path.parent_path();  // "g0001-.../"
  const auto name = ParseFolderName(path.filename().string());
  if (!name.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(folder, ": ", name.status().message()));
  }
  const std::string parent = path.parent_path().string();
  const auto directory = CheckpointDirectory::OpenToRead(
      parent.empty() ? "." : parent, file_system);
  if (!directory.ok()) return directory.status();
  return Open(*directory, *name);
}

}  // namespace holdfast
