// SPDX-License-Identifier: Apache-2.0
#include "common/checkpoint/row_extent.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/crc32c.h"
#include "common/checkpoint/data_file_format.h"
#include "common/checkpoint/encoding.h"

namespace holdfast {
namespace {

// The maximum number of float32 in a row, for any optimizer: 65,536 values with
// three slots each. Larger numbers could overflow.
constexpr uint32_t kMaxFloatsPerRow = 4 * 65536;

using Counts = google::protobuf::RepeatedField<uint64_t>;

uint64_t CountAt(const Counts& counts, uint32_t i) {
  return counts.empty() ? 0 : counts[i];
}

}  // namespace

// Decodes consecutive buckets from their bytes, which come in pieces.
class RowExtent::Decoder {
 public:
  Decoder(const RowExtent& extent, uint32_t bucket, VisitRow visit_row,
          VisitRemoved visit_removed)
      : extent_(extent),
        bucket_(bucket),
        visit_row_(visit_row),
        visit_removed_(visit_removed),
        row_bytes_(RowBytes(extent.floats_per_row())) {
    BeginBucket();
  }

  // Decodes the next bytes, whose address must be a multiple of 4.
  absl::Status Add(absl::string_view bytes) {
    while (!bytes.empty()) {
      while (left_ == 0) BeginNextPart();
      const size_t size = PartBytes();
      absl::Status visited;
      if (rest_.empty() && bytes.size() >= size) {
        visited = Visit(bytes.data());
        bytes.remove_prefix(size);
      } else {
        const size_t count = std::min(size - rest_.size(), bytes.size());
        rest_.append(bytes.data(), count);
        bytes.remove_prefix(count);
        if (rest_.size() < size) continue;
        visited = Visit(rest_.data());
        rest_.clear();
      }
      if (!visited.ok()) return visited;
    }
    return absl::OkStatus();
  }

 private:
  // The parts of a bucket, in this order.
  enum Part { kRows, kCandidates, kRemovedRows, kRemovedCandidates };

  void BeginBucket() {
    contents_ = extent_.Contents(bucket_);
    part_ = kRows;
    left_ = contents_.rows;
    before_.reset();
  }

  void BeginNextPart() {
    before_.reset();
    switch (part_) {
      case kRows:
        part_ = kCandidates;
        left_ = contents_.candidates;
        return;
      case kCandidates:
        part_ = kRemovedRows;
        left_ = contents_.removed_rows;
        return;
      case kRemovedRows:
        part_ = kRemovedCandidates;
        left_ = contents_.removed_candidates;
        return;
      case kRemovedCandidates:
        ++bucket_;
        BeginBucket();
    }
  }

  size_t PartBytes() const {
    switch (part_) {
      case kRows:
        return row_bytes_;
      case kCandidates:
        return kRowHeaderBytes;
      default:
        return kRemovedIdBytes;
    }
  }

  absl::Status Visit(const char* bytes) {
    const uint64_t id = Fixed64At(bytes);
    if (BucketOfRow(id) != bucket_) {
      return Damaged(
          absl::StrCat("row ", id, " belongs to bucket ", BucketOfRow(id)));
    }
    if (before_.has_value() && id <= *before_) {
      return Damaged(absl::StrCat("row ", id, " comes after row ", *before_));
    }
    before_ = id;
    --left_;
    const absl::Status visited =
        part_ == kRows || part_ == kCandidates
            ? VisitTheRow(id, bytes)
            : visit_removed_(id, part_ == kRemovedCandidates);
    return absl::IsDataLoss(visited) ? Damaged(visited.message()) : visited;
  }

  absl::Status VisitTheRow(uint64_t id, const char* bytes) {
    StoredRow row;
    row.bucket = bucket_;
    row.is_candidate = part_ == kCandidates;
    row.id = id;
    const uint64_t step_and_count = Fixed64At(bytes + 8);
    row.step = step_and_count >> kCountBits;
    row.count = step_and_count & ((uint32_t{1} << kCountBits) - 1);
    if (!row.is_candidate) {
      row.floats = absl::MakeConstSpan(
          reinterpret_cast<const float*>(bytes + kRowHeaderBytes),
          extent_.floats_per_row());
    }
    if (row.step > extent_.step()) {
      return absl::DataLossError(
          absl::StrCat("row ", id, " has step ", row.step,
                       ", which is after the checkpoint's"));
    }
    if (extent_.is_delta() && row.step <= *extent_.since()) {
      return absl::DataLossError(
          absl::StrCat("row ", id, " has step ", row.step,
                       ", but is among changes since step ", *extent_.since()));
    }
    return visit_row_(row);
  }

  absl::Status Damaged(absl::string_view what) const {
    return extent_.Damaged(bucket_, what);
  }

  const RowExtent& extent_;
  uint32_t bucket_;
  const VisitRow visit_row_;
  const VisitRemoved visit_removed_;
  const size_t row_bytes_;
  StoredBucket contents_;
  Part part_ = kRows;
  // The number of entries of the current part that have not been decoded yet.
  uint64_t left_ = 0;
  std::optional<uint64_t> before_;
  // The bytes of a row or id of which the rest has not been added yet.
  std::string rest_;
};

absl::StatusOr<RowExtent> RowExtent::Create(const Source& source,
                                            const proto::StoredRows& stored,
                                            uint32_t row_length) {
  RowExtent extent(source, stored);
  absl::Status status = extent.CheckBuckets(row_length);
  if (status.ok()) status = extent.CheckSince();
  if (status.ok()) status = extent.CheckSizes();
  if (!status.ok()) return status;
  return extent;
}

absl::Status RowExtent::CheckBuckets(uint32_t row_length) const {
  const uint32_t floats = floats_per_row();
  if (floats < row_length || floats > kMaxFloatsPerRow) {
    return Refuse(absl::StrCat("cannot have ", floats, " float32"));
  }
  const auto num_buckets = static_cast<uint32_t>(stored_->rows_size());
  const auto fits = [&](const Counts& counts) {
    return counts.empty() || counts.size() == stored_->rows_size();
  };
  if (stored_->first_bucket() > kRowBuckets ||
      num_buckets > kRowBuckets - stored_->first_bucket() ||
      !fits(stored_->candidates()) || !fits(stored_->removed_rows()) ||
      !fits(stored_->removed_candidates()) || !fits(stored_->all_rows()) ||
      !fits(stored_->all_candidates())) {
    return Refuse(absl::StrCat("cannot cover ", num_buckets,
                               " buckets from bucket ", stored_->first_bucket(),
                               " on"));
  }
  return absl::OkStatus();
}

absl::Status RowExtent::CheckSince() const {
  if (stored_->has_since() && stored_->since() != source_.previous_step) {
    return Refuse(absl::StrCat(
        "list removed ids since step ", stored_->since(),
        source_.previous_step.has_value()
            ? absl::StrCat(", but the previous checkpoint has step ",
                           *source_.previous_step)
            : ", but the manifest names no previous checkpoint"));
  }
  if (!stored_->has_since() && (!stored_->removed_rows().empty() ||
                                !stored_->removed_candidates().empty())) {
    return Refuse("list removed ids, but not since which step");
  }
  if (is_delta() && !(stored_->has_since() && source_.has_chain)) {
    return Refuse(stored_->has_since()
                      ? "are changes, but the manifest names no checkpoint "
                        "that has the other rows"
                      : "are changes, but not since a given step");
  }
  if (!is_delta() &&
      (!stored_->all_rows().empty() || !stored_->all_candidates().empty())) {
    return Refuse("are not changes, but have separate totals");
  }
  return absl::OkStatus();
}

absl::Status RowExtent::CheckSizes() {
  const uint64_t room = source_.end - stored_->offset();
  begins_.reserve(buckets_.size() + 1);
  for (uint32_t bucket = buckets_.begin; bucket < buckets_.end; ++bucket) {
    const StoredBucket contents = Contents(bucket);
    uint64_t left = room - begins_.back();
    // A count is compared with the file's size before it is multiplied.
    const auto take = [&](uint64_t count, uint64_t size) {
      if (count > left / size) return false;
      left -= count * size;
      return true;
    };
    if (!take(contents.rows, RowBytes(floats_per_row())) ||
        !take(contents.candidates, kRowHeaderBytes) ||
        !take(contents.removed_rows, kRemovedIdBytes) ||
        !take(contents.removed_candidates, kRemovedIdBytes)) {
      return Refuse("do not fit in the file");
    }
    begins_.push_back(room - left);
  }
  const uint64_t blocks =
      (bytes() + kCheckpointBlockBytes - 1) / kCheckpointBlockBytes;
  if (static_cast<uint64_t>(stored_->block_crc32c_size()) != blocks) {
    return Refuse(absl::StrCat("have checksums of ",
                               stored_->block_crc32c_size(), " blocks, not ",
                               blocks));
  }
  return absl::OkStatus();
}

std::optional<uint64_t> RowExtent::since() const {
  if (!stored_->has_since()) return std::nullopt;
  return stored_->since();
}

StoredBucket RowExtent::Contents(uint32_t bucket) const {
  const uint32_t i = bucket - buckets_.begin;
  StoredBucket contents;
  contents.rows = stored_->rows(i);
  contents.candidates = CountAt(stored_->candidates(), i);
  contents.removed_rows = CountAt(stored_->removed_rows(), i);
  contents.removed_candidates = CountAt(stored_->removed_candidates(), i);
  contents.all_rows =
      is_delta() ? CountAt(stored_->all_rows(), i) : contents.rows;
  contents.all_candidates =
      is_delta() ? CountAt(stored_->all_candidates(), i) : contents.candidates;
  return contents;
}

uint64_t RowExtent::Bytes(BucketRange buckets) const {
  return begins_[buckets.end - buckets_.begin] -
         begins_[buckets.begin - buckets_.begin];
}

absl::Status RowExtent::Read(BucketRange buckets, RowBlock* block,
                             VisitRow visit_row,
                             VisitRemoved visit_removed) const {
  if (Bytes(buckets) == 0) return absl::OkStatus();
  Decoder decoder(*this, buckets.begin, visit_row, visit_removed);
  return ReadBytes(buckets, block,
                   [&](absl::string_view bytes) { return decoder.Add(bytes); });
}

absl::Status RowExtent::ReadBucket(uint32_t bucket, RowBlock* block,
                                   std::string* bytes, VisitRow visit_row,
                                   VisitRemoved visit_removed) const {
  const BucketRange one = {bucket, bucket + 1};
  bytes->clear();
  if (Bytes(one) == 0) return absl::OkStatus();
  bytes->reserve(Bytes(one));
  absl::Status read = ReadBytes(one, block, [&](absl::string_view piece) {
    bytes->append(piece.data(), piece.size());
    return absl::OkStatus();
  });
  if (!read.ok()) return read;
  return Decoder(*this, bucket, visit_row, visit_removed).Add(*bytes);
}

absl::Status RowExtent::ReadBytes(BucketRange buckets, RowBlock* block,
                                  VisitBytes visit) const {
  uint64_t at = begins_[buckets.begin - buckets_.begin];
  const uint64_t end = begins_[buckets.end - buckets_.begin];
  while (at < end) {
    const uint64_t number = at / kCheckpointBlockBytes;
    const uint64_t first = number * kCheckpointBlockBytes;
    HOLDFAST_RETURN_IF_ERROR(ReadBlock(number, block));
    const uint64_t until = std::min(end, first + block->bytes.size());
    HOLDFAST_RETURN_IF_ERROR(
        visit(absl::string_view(block->bytes).substr(at - first, until - at)));
    at = until;
  }
  return absl::OkStatus();
}

absl::Status RowExtent::ReadBlock(uint64_t number, RowBlock* block) const {
  if (block->extent == this && block->number == number) {
    return absl::OkStatus();
  }
  block->extent = nullptr;
  const uint64_t first = number * kCheckpointBlockBytes;
  block->bytes.resize(std::min(kCheckpointBlockBytes, bytes() - first));
  HOLDFAST_RETURN_IF_ERROR(ReadExactly(source_.file, source_.path,
                                       stored_->offset() + first,
                                       block->bytes.size(), &block->bytes[0]));
  const uint32_t crc =
      ExtendCrc32c(0, block->bytes.data(), block->bytes.size());
  const uint32_t expected = stored_->block_crc32c(number);
  if (crc == expected) {
    block->extent = this;
    block->number = number;
    return absl::OkStatus();
  }
  // The indices of the buckets that the block overlaps.
  const auto bucket_at = [&](uint64_t byte) {
    return std::upper_bound(begins_.begin(), begins_.end(), byte) -
           begins_.begin() - 1 + buckets_.begin;
  };
  return absl::DataLossError(absl::StrFormat(
      "%s: block %d of table \"%s\", which has rows of buckets %d to %d, has "
      "CRC32C %08x, expected %08x",
      source_.path, number, stored_->table(), bucket_at(first),
      bucket_at(first + block->bytes.size() - 1), crc, expected));
}

absl::Status RowExtent::Refuse(absl::string_view what) const {
  return absl::DataLossError(absl::StrCat(source_.path, ": rows of table \"",
                                          stored_->table(), "\" ", what));
}

absl::Status RowExtent::Damaged(uint32_t bucket, absl::string_view what) const {
  return absl::DataLossError(absl::StrCat(source_.path, ": table \"",
                                          stored_->table(), "\", bucket ",
                                          bucket, ": ", what));
}

}  // namespace holdfast
