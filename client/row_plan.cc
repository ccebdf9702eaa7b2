// SPDX-License-Identifier: Apache-2.0
#include "client/row_plan.h"

#include <algorithm>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/tensor/row_bucket.h"
#include "common/tensor/row_ids.h"

namespace holdfast::client {
namespace {

constexpr size_t kMaxRows = std::numeric_limits<uint32_t>::max();

// The maximum size of one id, in bytes (common/tensor/row_ids.h).
constexpr uint64_t kIdBytes = 10;

// The maximum size of everything in a message for one range but its values and
// ids: see EncodedBytes in common/rpc/tensor_codec.cc.
uint64_t HeaderBytes(const Layout::Table& table) {
  return 121 + table.name.size();
}

// Fills the parts of one ps.
class Packer {
 public:
  Packer(uint64_t part_bytes, std::vector<RowPlan::Part>* parts)
      : part_bytes_(part_bytes), parts_(*parts) {}

  // Adds `num_rows` rows of the table with this index.
  void Add(size_t index, const Layout::Table& table, size_t num_rows) {
    const uint64_t row_bytes = table.row_length * sizeof(float);
    const uint64_t header = HeaderBytes(table);
    for (size_t begin = 0; begin < num_rows;) {
      if (Room(row_bytes, header) == 0) {
        parts_.emplace_back();
        bytes_ = 0;
        header_bytes_ = 0;
      }
      const size_t size = std::min<uint64_t>(
          num_rows - begin, std::max<uint64_t>(Room(row_bytes, header), 1));
      parts_.back().push_back({index, begin, size});
      bytes_ += size * row_bytes;
      header_bytes_ += header + size * kIdBytes;
      begin += size;
    }
  }

 private:
  // The number of rows that the last part has room for.
  uint64_t Room(uint64_t row_bytes, uint64_t header) const {
    if (parts_.empty()) return 0;
    if (bytes_ >= part_bytes_ || header_bytes_ + header >= kMaxHeaderBytes) {
      return 0;
    }
    return std::min((part_bytes_ - bytes_) / row_bytes,
                    (kMaxHeaderBytes - header_bytes_ - header) / kIdBytes);
  }

  const uint64_t part_bytes_;
  std::vector<RowPlan::Part>& parts_;
  // The size of the values in the last part, and of everything else in it, in
  // bytes.
  uint64_t bytes_ = 0;
  uint64_t header_bytes_ = 0;
};

}  // namespace

absl::Status CheckRowIds(const Layout& layout, size_t table,
                         absl::Span<const uint64_t> ids) {
  if (table >= layout.tables().size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "there is no table ", table, ", only ", layout.tables().size()));
  }
  const auto error = [&](const auto&... what) {
    return absl::InvalidArgumentError(
        absl::StrCat("table \"", layout.tables()[table].name, "\": ", what...));
  };
  if (ids.size() > kMaxRows) {
    return error(ids.size(), " rows; at most ", kMaxRows, " are possible");
  }
  const auto falls = std::adjacent_find(
      ids.begin(), ids.end(), [](uint64_t a, uint64_t b) { return a >= b; });
  if (falls != ids.end()) {
    return error("row ", *falls, " is followed by row ", *(falls + 1),
                 ", but ids must be strictly increasing");
  }
  return absl::OkStatus();
}

RowPlan::RowPlan(const Layout* layout)
    : layout_(*layout),
      tables_(layout->tables().size()),
      parts_(layout->num_ps()) {
  for (Table& table : tables_) table.begins.assign(layout->num_ps() + 1, 0);
}

void RowPlan::Set(size_t index, absl::Span<const uint64_t> ids) {
  Table& table = tables_[index];
  const uint32_t num_ps = layout_.num_ps();
  if (num_ps == 1) {
    table.ids = ids;
    table.begins.back() = ids.size();
    return;
  }
  std::vector<size_t>& begins = table.begins;
  for (const uint64_t id : ids) {
    ++begins[PsOfBucket(BucketOfRow(id), num_ps) + 1];
  }
  for (uint32_t ps = 0; ps < num_ps; ++ps) begins[ps + 1] += begins[ps];
  table.own_ids.resize(ids.size());
  table.places.resize(ids.size());
  std::vector<size_t> next(begins.begin(), begins.end() - 1);
  for (size_t i = 0; i < ids.size(); ++i) {
    const size_t at = next[PsOfBucket(BucketOfRow(ids[i]), num_ps)]++;
    table.own_ids[at] = ids[i];
    table.places[at] = static_cast<uint32_t>(i);
  }
  table.ids = table.own_ids;
}

void RowPlan::Cut(int64_t part_bytes) {
  for (uint32_t ps = 0; ps < parts_.size(); ++ps) {
    Packer packer(static_cast<uint64_t>(part_bytes), &parts_[ps]);
    for (size_t i = 0; i < tables_.size(); ++i) {
      const std::vector<size_t>& begins = tables_[i].begins;
      packer.Add(i, layout_.tables()[i], begins[ps + 1] - begins[ps]);
    }
  }
}

void RowPlan::AddEmptyParts(const Plan& beside) {
  for (uint32_t ps = 0; ps < parts_.size(); ++ps) {
    if (parts_[ps].empty() && beside.parts[ps].empty()) {
      parts_[ps].emplace_back();
    }
  }
}

uint64_t RowPlan::BytesOf(uint32_t ps) const {
  uint64_t bytes = 0;
  for (size_t i = 0; i < tables_.size(); ++i) {
    const std::vector<size_t>& begins = tables_[i].begins;
    bytes += (begins[ps + 1] - begins[ps]) * layout_.tables()[i].row_length *
             sizeof(float);
  }
  return bytes;
}

size_t RowPlan::FirstPlace(uint32_t ps, const RowRange& range) const {
  return tables_[range.table].begins[ps] + range.begin;
}

absl::Span<const uint64_t> RowPlan::Ids(uint32_t ps,
                                        const RowRange& range) const {
  return tables_[range.table].ids.subspan(FirstPlace(ps, range), range.size);
}

proto::RowIds RowPlan::EncodedIds(uint32_t ps, const RowRange& range) const {
  proto::RowIds rows;
  rows.set_num_rows(range.size);
  rows.set_ids(EncodeRowIds(Ids(ps, range)));
  return rows;
}

absl::Span<const uint32_t> RowPlan::Places(uint32_t ps,
                                           const RowRange& range) const {
  const std::vector<uint32_t>& places = tables_[range.table].places;
  if (places.empty()) return {};
  return absl::MakeConstSpan(places).subspan(FirstPlace(ps, range), range.size);
}

}  // namespace holdfast::client
