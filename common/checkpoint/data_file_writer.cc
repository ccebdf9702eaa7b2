// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/crc32c.h"
#include "common/checkpoint/data_file.h"
#include "common/checkpoint/data_file_format.h"
#include "common/checkpoint/encoding.h"
#include "google/protobuf/repeated_field.h"

namespace holdfast {
namespace {

// Smaller writes are gathered in a buffer of this size.
constexpr size_t kBufferBytes = size_t{1} << 20;

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
    // A file that cannot be removed is replaced by the next attempt.
    file_system_->Remove(aside_).IgnoreError();
  }

  absl::Status Start() {
    HOLDFAST_RETURN_IF_ERROR(file_system_->MakeFolder(folder_));
    HOLDFAST_ASSIGN_OR_RETURN(auto file, file_system_->Create(aside_));
    file_ = std::move(file);
    buffer_.reserve(kBufferBytes);
    return Keep(Write(kDataFileMagic));
  }

  absl::Status Begin(absl::string_view variable, uint32_t slot, uint64_t begin,
                     uint64_t size) override {
    if (!Ready()) return status_;
    if (!index_.rows().empty()) {
      return Keep(absl::InternalError(
          absl::StrCat(aside_, ": variables come before tables")));
    }
    proto::StoredExtent* extent = index_.add_extents();
    extent->set_variable(std::string(variable));
    extent->set_slot(slot);
    extent->set_begin(begin);
    extent->set_size(size);
    extent->set_offset(written_ + buffer_.size());
    missing_ = size;
    block_crcs_ = extent->mutable_block_crc32c();
    return absl::OkStatus();
  }

  absl::Status Append(absl::Span<const float> elements) override {
    if (!status_.ok()) return status_;
    if (elements.size() > missing_) {
      return Keep(absl::InternalError(
          absl::StrCat(aside_, ": ", elements.size(), " elements, but only ",
                       missing_, " are left in the extent")));
    }
    missing_ -= elements.size();
    const absl::Status written = WriteBlocks(
        absl::string_view(reinterpret_cast<const char*>(elements.data()),
                          elements.size() * kElementBytes));
    if (written.ok() && missing_ == 0) EndBlocks();
    return written;
  }

  absl::Status BeginRows(const Rows& rows) override {
    if (!Ready()) return status_;
    proto::StoredRows* extent = index_.add_rows();
    extent->set_table(std::string(rows.table));
    extent->set_floats_per_row(rows.floats_per_row);
    extent->set_first_bucket(rows.buckets.begin);
    extent->set_offset(written_ + buffer_.size());
    if (rows.since.has_value()) extent->set_since(*rows.since);
    extent->set_changes(rows.changes);
    missing_buckets_ = rows.buckets.size();
    block_crcs_ = extent->mutable_block_crc32c();
    return absl::OkStatus();
  }

  absl::Status AppendBucket(const StoredBucket& contents,
                            absl::string_view bytes) override {
    if (!status_.ok()) return status_;
    if (missing_buckets_ == 0) {
      return Keep(absl::InternalError(absl::StrCat(aside_,
                                                   ": all buckets are "
                                                   "there already")));
    }
    proto::StoredRows& extent = *index_.mutable_rows()->rbegin();
    if (bytes.size() != BucketBytes(contents, extent.floats_per_row())) {
      return Keep(absl::InternalError(
          absl::StrCat(aside_, ": ", bytes.size(), " bytes of ", contents.rows,
                       " rows, ", contents.candidates, " candidates and ",
                       contents.removed_rows + contents.removed_candidates,
                       " removed ids of table \"", extent.table(), "\"")));
    }
    extent.add_rows(contents.rows);
    extent.add_candidates(contents.candidates);
    extent.add_removed_rows(contents.removed_rows);
    extent.add_removed_candidates(contents.removed_candidates);
    if (extent.changes()) {
      extent.add_all_rows(contents.all_rows);
      extent.add_all_candidates(contents.all_candidates);
    }
    const absl::Status written = WriteBlocks(bytes);
    if (written.ok() && --missing_buckets_ == 0) {
      EndBlocks();
      for (auto* const counts :
           {extent.mutable_candidates(), extent.mutable_removed_rows(),
            extent.mutable_removed_candidates(), extent.mutable_all_rows(),
            extent.mutable_all_candidates()}) {
        const bool none =
            std::all_of(counts->begin(), counts->end(),
                        [](uint64_t count) { return count == 0; });
        if (none) counts->Clear();
      }
    }
    return written;
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
  // Keeps an error for all later calls.
  absl::Status Keep(absl::Status status) {
    if (!status.ok()) status_ = status;
    return status;
  }

  // Whether there was no error and no extent is open.
  bool Ready() {
    if (status_.ok() && (missing_ > 0 || missing_buckets_ > 0)) {
      Keep(absl::InternalError(
               absl::StrCat(aside_, ": the extent lacks ",
                            missing_ > 0 ? missing_ : missing_buckets_,
                            missing_ > 0 ? " elements" : " buckets")))
          .IgnoreError();
    }
    return status_.ok();
  }

  // Writes bytes of the open extent.
  absl::Status WriteBlocks(absl::string_view bytes) {
    while (!bytes.empty()) {
      const absl::string_view part =
          bytes.substr(0, kCheckpointBlockBytes - in_block_);
      // The checksum is computed right before the bytes are copied, so that
      // they are read from memory only once.
      crc_ = ExtendCrc32c(crc_, part.data(), part.size());
      HOLDFAST_RETURN_IF_ERROR(Keep(Write(part)));
      in_block_ += part.size();
      bytes.remove_prefix(part.size());
      if (in_block_ == kCheckpointBlockBytes) EndBlocks();
    }
    return absl::OkStatus();
  }

  // Ends the last block of the open extent.
  void EndBlocks() {
    if (in_block_ > 0) block_crcs_->Add(crc_);
    in_block_ = 0;
    crc_ = 0;
  }

  absl::Status Write(absl::string_view bytes) {
    if (buffer_.size() + bytes.size() > kBufferBytes) {
      HOLDFAST_RETURN_IF_ERROR(Flush());
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
    HOLDFAST_ASSIGN_OR_RETURN(const auto index, EncodeMessage(index_));
    const uint32_t crc = Crc32c(index);
    std::string trailer;
    AppendFixed64(written_ + buffer_.size(), &trailer);
    AppendFixed32(index.size(), &trailer);
    AppendFixed32(crc, &trailer);
    trailer.append(kDataFileMagic.data(), kDataFileMagic.size());

    absl::Status status = Write(index);
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
  // Null before `aside_` exists, and once it is renamed.
  std::unique_ptr<WritableFile> file_;
  absl::Status status_;
  proto::DataFileIndex index_;
  // For the last extent: the missing elements or buckets, the checksums of its
  // blocks, the bytes in the last block so far, and their checksum.
  uint64_t missing_ = 0;
  uint32_t missing_buckets_ = 0;
  google::protobuf::RepeatedField<uint32_t>* block_crcs_ = nullptr;
  uint64_t in_block_ = 0;
  uint32_t crc_ = 0;
  // The number of bytes appended to the file, and the buffered bytes that
  // follow them.
  uint64_t written_ = 0;
  std::string buffer_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DataFileWriter>> DataFileWriter::Create(
    const CheckpointDirectory& directory, const proto::CheckpointName& name,
    uint32_t ps, uint32_t num_ps) {
  auto writer = std::make_unique<Writer>(
      directory.file_system(), directory.Folder(name), name, ps, num_ps);
  HOLDFAST_RETURN_IF_ERROR(writer->Start());
  return writer;
}

}  // namespace holdfast
