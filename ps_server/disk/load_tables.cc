// SPDX-License-Identifier: Apache-2.0
#include "ps_server/disk/load_tables.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/tensor/row_bucket.h"

namespace holdfast {
namespace {

using Kind = EmbeddingTable::Kind;

// The number of buckets that are read at a time.
constexpr uint32_t kBucketsAtATime = 16;

// Checks that the checkpoint's rows can be loaded with their slots.
absl::Status CheckRows(const CheckpointReader& reader,
                       const std::string& folder, const EmbeddingTable& table) {
  const proto::EmbeddingTable& declared = table.declared();
  const auto refuse = [&](auto... what) {
    return absl::FailedPreconditionError(
        absl::StrCat(folder, ": table \"", declared.name(), "\" ", what...));
  };
  const proto::EmbeddingTable* const stored = reader.FindTable(declared.name());
  if (stored == nullptr) return refuse("is declared, but not saved");
  if (stored->row_length() != declared.row_length()) {
    return refuse("is saved with rows of ", stored->row_length(),
                  " values, declared with rows of ", declared.row_length());
  }
  const size_t saved = reader.floats_per_row(declared.name());
  const size_t floats = table.floats(Kind::kRow);
  if (saved != floats) {
    return refuse("is saved with ", saved - declared.row_length(),
                  " float32 of slots for each row, its optimizer has ",
                  floats - declared.row_length());
  }
  return absl::OkStatus();
}

// Calls load(row) for each row and candidate that the checkpoint has in the
// table's buckets, some buckets at a time; before that, calls begin(bucket) for
// each of these buckets.
absl::Status LoadRows(CheckpointReader* reader, const Reading& reading,
                      EmbeddingTable* table,
                      absl::FunctionRef<absl::Status(uint32_t bucket)> begin,
                      CheckpointReader::VisitRow load) {
  const std::string& name = table->declared().name();
  const BucketRange& all = table->buckets();
  absl::Status status =
      table->CheckRoom(static_cast<int64_t>(reader->CountRows(name, all).rows));
  for (uint32_t b = all.begin; status.ok() && b < all.end;
       b += kBucketsAtATime) {
    const BucketRange some = {b, std::min(b + kBucketsAtATime, all.end)};
    status = reading.go_on();
    for (uint32_t each = some.begin; status.ok() && each < some.end; ++each) {
      status = begin(each);
    }
    if (status.ok()) status = reader->ReadRows(name, some, load);
    *reading.done += reader->CountRows(name, some).bytes;
  }
  return status;
}

}  // namespace

absl::Status ResumeTable(CheckpointReader* reader, const std::string& folder,
                         const Reading& reading, EmbeddingTable* table) {
  HOLDFAST_RETURN_IF_ERROR(CheckRows(*reader, folder, *table));
  const uint64_t version = reader->manifest().name().step();
  table->SetVersion(GlobalStep(version));
  return LoadRows(
      reader, reading, table, [](uint32_t) { return absl::OkStatus(); },
      [&](const StoredRow& row) {
        if (row.step > version) {
          return absl::DataLossError(
              absl::StrCat("row ", row.id, " is of step ", row.step));
        }
        return table->Load(row.is_candidate ? Kind::kCandidate : Kind::kRow,
                           row.id, row.step, row.count, row.floats);
      });
}

bool HasTable(const CheckpointReader& reader,
              const proto::EmbeddingTable& declared) {
  const proto::EmbeddingTable* const stored = reader.FindTable(declared.name());
  return stored != nullptr && stored->row_length() == declared.row_length();
}

absl::Status WarmStartTable(CheckpointReader* reader, const std::string& folder,
                            bool with_slots, const Reading& reading,
                            EmbeddingTable* table) {
  const proto::EmbeddingTable& declared = table->declared();
  if (with_slots) {
    HOLDFAST_RETURN_IF_ERROR(CheckRows(*reader, folder, *table));
  }
  // For each bucket with more rows than it may have: the lowest (step, id) of
  // the rows that are loaded.
  using Dated = std::pair<uint64_t, uint64_t>;
  std::vector<std::pair<uint32_t, Dated>> oldest;
  const auto begin = [&](uint32_t bucket) -> absl::Status {
    if (!declared.has_max_rows()) return absl::OkStatus();
    const uint64_t cap = declared.max_rows() / kRowBuckets;
    const BucketRange one = {bucket, bucket + 1};
    if (reader->CountRows(declared.name(), one).rows <= cap) {
      return absl::OkStatus();
    }
    std::vector<Dated> rows;
    absl::Status read =
        reader->ReadRows(declared.name(), one, [&](const StoredRow& row) {
          if (!row.is_candidate) rows.emplace_back(row.step, row.id);
          return absl::OkStatus();
        });
    if (!read.ok()) return read;
    std::nth_element(rows.begin(), rows.begin() + (cap - 1), rows.end(),
                     std::greater<>());
    oldest.emplace_back(bucket, rows[cap - 1]);
    return absl::OkStatus();
  };
  return LoadRows(
      reader, reading, table, begin, [&](const StoredRow& row) -> absl::Status {
        while (!oldest.empty() && oldest.front().first < row.bucket) {
          oldest.erase(oldest.begin());
        }
        if (row.is_candidate) return absl::OkStatus();
        if (!oldest.empty() && oldest.front().first == row.bucket &&
            Dated(row.step, row.id) < oldest.front().second) {
          return absl::OkStatus();
        }
        if (with_slots) {
          return table->Load(Kind::kRow, row.id, 0, 0, row.floats);
        }
        return table->LoadValues(row.id,
                                 row.floats.first(declared.row_length()));
      });
}

uint64_t BytesToLoad(const CheckpointReader& reader,
                     const EmbeddingTable& table) {
  return reader.CountRows(table.declared().name(), table.buckets()).bytes;
}

}  // namespace holdfast
