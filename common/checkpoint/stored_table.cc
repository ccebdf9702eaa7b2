#include "common/checkpoint/stored_table.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/checkpoint/crc32c.h"
#include "common/checkpoint/data_file_format.h"
#include "common/checkpoint/encoding.h"

namespace holdfast {
namespace {

// A row has at most so many float32, whatever its optimizer: three slots for
// each of 65,536 values. Larger numbers could overflow.
constexpr uint32_t kMaxFloatsPerRow = 4 * 65536;

uint64_t Candidates(const proto::StoredRows& stored, uint32_t i) {
  return stored.candidates().empty() ? 0 : stored.candidates(i);
}

}  // namespace

// Rows of consecutive buckets out of their bytes, which come in pieces.
class StoredTable::Decoder {
 public:
  Decoder(const StoredTable& table, const Stretch& stretch, uint32_t bucket,
          CheckpointReader::VisitRow visit)
      : table_(table), stretch_(stretch), bucket_(bucket), visit_(visit) {
    BeginBucket();
  }

  // The next bytes, at an address that is a multiple of 4.
  absl::Status Add(absl::string_view bytes) {
    while (!bytes.empty()) {
      while (rows_ == 0 && candidates_ == 0) {
        ++bucket_;
        BeginBucket();
      }
      const size_t size =
          rows_ > 0 ? RowBytes(table_.floats_per_row()) : kRowHeaderBytes;
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
  void BeginBucket() {
    const uint32_t i = bucket_ - stretch_.buckets.begin;
    rows_ = stretch_.stored->rows(i);
    candidates_ = Candidates(*stretch_.stored, i);
    before_.reset();
  }

  absl::Status Visit(const char* bytes) {
    StoredRow row;
    row.bucket = bucket_;
    row.is_candidate = rows_ == 0;
    row.id = Fixed64At(bytes);
    const uint64_t step_and_count = Fixed64At(bytes + 8);
    row.step = step_and_count >> kCountBits;
    row.count = step_and_count & ((uint32_t{1} << kCountBits) - 1);
    if (!row.is_candidate) {
      row.floats = absl::MakeConstSpan(
          reinterpret_cast<const float*>(bytes + kRowHeaderBytes),
          table_.floats_per_row());
    }
    if (BucketOfRow(row.id) != bucket_) {
      return Damaged(absl::StrCat("row ", row.id, " belongs to bucket ",
                                  BucketOfRow(row.id)));
    }
    if (before_.has_value() && row.id <= *before_) {
      return Damaged(
          absl::StrCat("row ", row.id, " comes after row ", *before_));
    }
    before_ = row.id;
    if (!row.is_candidate) {
      if (--rows_ == 0) before_.reset();
    } else {
      --candidates_;
    }
    absl::Status visited = visit_(row);
    return absl::IsDataLoss(visited) ? Damaged(visited.message()) : visited;
  }

  absl::Status Damaged(absl::string_view what) const {
    return absl::DataLossError(
        absl::StrCat(stretch_.path, ": table \"", table_.declared().name(),
                     "\", bucket ", bucket_, ": ", what));
  }

  const StoredTable& table_;
  const Stretch& stretch_;
  uint32_t bucket_;
  const CheckpointReader::VisitRow visit_;
  // That are to come of the bucket.
  uint64_t rows_ = 0;
  uint64_t candidates_ = 0;
  std::optional<uint64_t> before_;
  // The beginning of a row whose end has not come.
  std::string rest_;
};

absl::StatusOr<uint64_t> StoredTable::Take(const std::string& path,
                                           ReadableFile* file,
                                           const proto::StoredRows& stored,
                                           uint64_t end) {
  const auto damaged = [&](absl::string_view what) {
    return absl::DataLossError(absl::StrCat(path, ": rows of table \"",
                                            declared_->name(), "\" ", what));
  };
  const uint32_t floats = stored.floats_per_row();
  if (floats < declared_->row_length() || floats > kMaxFloatsPerRow ||
      (!stretches_.empty() && floats != floats_per_row_)) {
    return damaged(absl::StrCat("cannot have ", floats, " float32"));
  }
  const auto num_buckets = static_cast<uint32_t>(stored.rows_size());
  if (stored.first_bucket() > kRowBuckets ||
      num_buckets > kRowBuckets - stored.first_bucket() ||
      (!stored.candidates().empty() &&
       stored.candidates_size() != stored.rows_size())) {
    return damaged(absl::StrCat("cannot be of ", num_buckets,
                                " buckets from bucket ", stored.first_bucket(),
                                " on"));
  }
  Stretch stretch{path,
                  file,
                  &stored,
                  {stored.first_bucket(), stored.first_bucket() + num_buckets},
                  {0}};
  // A number must fit in the file before it is multiplied.
  const uint64_t room = end - stored.offset();
  for (uint32_t i = 0; i < num_buckets; ++i) {
    const uint64_t rows = stored.rows(i);
    const uint64_t candidates = Candidates(stored, i);
    const uint64_t left = room - stretch.begins.back();
    if (rows > left / RowBytes(floats) ||
        candidates > (left - rows * RowBytes(floats)) / kRowHeaderBytes) {
      return damaged("do not fit in the file");
    }
    stretch.begins.push_back(stretch.begins.back() + rows * RowBytes(floats) +
                             candidates * kRowHeaderBytes);
  }
  const uint64_t blocks = (stretch.begins.back() + kCheckpointBlockBytes - 1) /
                          kCheckpointBlockBytes;
  if (static_cast<uint64_t>(stored.block_crc32c_size()) != blocks) {
    return damaged(absl::StrCat("have checksums of ",
                                stored.block_crc32c_size(), " blocks, not of ",
                                blocks));
  }
  if (num_buckets == 0) return 0;
  const uint64_t bytes = stretch.begins.back();
  floats_per_row_ = floats;
  stretches_.push_back(std::move(stretch));
  return bytes;
}

absl::Status StoredTable::CheckCoverage() {
  std::sort(stretches_.begin(), stretches_.end(),
            [](const Stretch& a, const Stretch& b) {
              return a.buckets.begin < b.buckets.begin;
            });
  uint32_t end = 0;
  const auto check_next = [&](uint32_t begin) {
    if (begin == end) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrCat("lacks buckets of table \"", declared_->name(),
                     "\", or has them twice: between ", std::min(begin, end),
                     " and ", std::max(begin, end)));
  };
  for (const Stretch& stretch : stretches_) {
    absl::Status checked = check_next(stretch.buckets.begin);
    if (!checked.ok()) return checked;
    end = stretch.buckets.end;
  }
  return check_next(kRowBuckets);
}

StoredCounts StoredTable::Count(BucketRange buckets) const {
  StoredCounts counts;
  for (const Stretch& stretch : stretches_) {
    const BucketRange& all = stretch.buckets;
    const uint32_t begin = std::max(all.begin, buckets.begin);
    const uint32_t end = std::min(all.end, buckets.end);
    if (begin >= end) continue;
    for (uint32_t bucket = begin; bucket < end; ++bucket) {
      counts.rows += stretch.stored->rows(bucket - all.begin);
      counts.candidates += Candidates(*stretch.stored, bucket - all.begin);
    }
    counts.bytes +=
        stretch.begins[end - all.begin] - stretch.begins[begin - all.begin];
  }
  return counts;
}

absl::Status StoredTable::Read(BucketRange buckets, std::string* block,
                               CheckpointReader::VisitRow visit) const {
  for (const Stretch& stretch : stretches_) {
    const BucketRange part = {std::max(stretch.buckets.begin, buckets.begin),
                              std::min(stretch.buckets.end, buckets.end)};
    if (part.begin >= part.end) continue;
    absl::Status read = ReadStretch(stretch, part, block, visit);
    if (!read.ok()) return read;
  }
  return absl::OkStatus();
}

absl::Status StoredTable::ReadStretch(const Stretch& stretch,
                                      BucketRange buckets, std::string* block,
                                      CheckpointReader::VisitRow visit) const {
  uint64_t at = stretch.begins[buckets.begin - stretch.buckets.begin];
  const uint64_t end = stretch.begins[buckets.end - stretch.buckets.begin];
  Decoder decoder(*this, stretch, buckets.begin, visit);
  while (at < end) {
    const uint64_t number = at / kCheckpointBlockBytes;
    const uint64_t first = number * kCheckpointBlockBytes;
    absl::Status status = ReadBlock(stretch, number, block);
    if (!status.ok()) return status;
    const uint64_t until = std::min(end, first + block->size());
    status =
        decoder.Add(absl::string_view(*block).substr(at - first, until - at));
    if (!status.ok()) return status;
    at = until;
  }
  return absl::OkStatus();
}

absl::Status StoredTable::ReadBlock(const Stretch& stretch, uint64_t number,
                                    std::string* block) const {
  const uint64_t first = number * kCheckpointBlockBytes;
  block->resize(std::min(kCheckpointBlockBytes, stretch.begins.back() - first));
  absl::Status read =
      ReadExactly(stretch.file, stretch.path, stretch.stored->offset() + first,
                  block->size(), &(*block)[0]);
  if (!read.ok()) return read;
  const uint32_t crc = ExtendCrc32c(0, block->data(), block->size());
  const uint32_t expected = stretch.stored->block_crc32c(number);
  if (crc == expected) return absl::OkStatus();
  // The buckets that the block has something of.
  const auto bucket_at = [&](uint64_t byte) {
    return std::upper_bound(stretch.begins.begin(), stretch.begins.end(),
                            byte) -
           stretch.begins.begin() - 1 + stretch.buckets.begin;
  };
  return absl::DataLossError(absl::StrFormat(
      "%s: block %d of table \"%s\", which has rows of buckets %d to %d, has "
      "the CRC32C %08x, and should have %08x",
      stretch.path, number, declared_->name(), bucket_at(first),
      bucket_at(first + block->size() - 1), crc, expected));
}

}  // namespace holdfast
