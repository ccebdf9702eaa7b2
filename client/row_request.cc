// SPDX-License-Identifier: Apache-2.0
#include "client/row_request.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace holdfast::client {

absl::Status CheckRowUse(const EmbeddingTables& tables, const RowUse& use) {
  const size_t num_tables = static_cast<size_t>(tables.size());
  if (use.table >= num_tables) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no table ", use.table, ", only ", num_tables));
  }
  if (use.ids.size() < uint64_t{1} << 32) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "table \"", tables[static_cast<int>(use.table)].name(),
      "\": ", use.ids.size(), " ids; a batch has at most 2^32 - 1"));
}

absl::Status RowRequest::Assign(const EmbeddingTables& tables,
                                absl::Span<const RowUse> uses) {
  num_uses_ = 0;
  for (size_t i = 0; i < uses.size(); ++i) {
    const RowUse& use = uses[i];
    HOLDFAST_RETURN_IF_ERROR(CheckRowUse(tables, use));
    const proto::EmbeddingTable& table = tables[static_cast<int>(use.table)];
    const bool twice = std::any_of(
        uses.begin(), uses.begin() + i,
        [&](const RowUse& other) { return other.table == use.table; });
    if (twice) {
      return absl::InvalidArgumentError(
          absl::StrCat("table \"", table.name(),
                       "\" is named twice: its rows are read "
                       "together"));
    }
  }
  if (uses_.size() < uses.size()) uses_.resize(uses.size());
  for (size_t i = 0; i < uses.size(); ++i) {
    const proto::EmbeddingTable& table =
        tables[static_cast<int>(uses[i].table)];
    uses_[i].declared = &table;
    uses_[i].table = uses[i].table;
    uses_[i].row_length = table.row_length();
    uses_[i].batch.Assign(uses[i].ids);
  }
  num_uses_ = uses.size();
  return absl::OkStatus();
}

void RowRequest::WantFrom(Parameters* values) const {
  for (size_t table = 0; table < values->num_tables(); ++table) {
    values->WantRows(table, {});
  }
  for (const Use& use : uses()) {
    values->WantRows(use.table, use.batch.unique());
  }
}

bool RowRequest::IsWantedFrom(const Parameters& values) const {
  size_t wanted = 0;
  for (size_t table = 0; table < values.num_tables(); ++table) {
    wanted += values.RowIds(table).size();
  }
  for (const Use& use : uses()) {
    if (values.RowIds(use.table) != use.batch.unique()) return false;
    wanted -= use.batch.unique().size();
  }
  return wanted == 0;
}

bool RowRequest::IsIn(const Parameters& values) const {
  return std::all_of(uses().begin(), uses().end(), [&](const Use& use) {
    const absl::Span<const uint64_t> here = values.RowIds(use.table);
    const absl::Span<const uint64_t> ids = use.batch.unique();
    return values.RowsOf(use.table).size() == here.size() * use.row_length &&
           std::includes(here.begin(), here.end(), ids.begin(), ids.end());
  });
}

absl::Status RowRequest::CheckSize(size_t index, size_t num_values) const {
  const Use& use = uses_[index];
  if (num_values == this->num_values(index)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "table \"", use.declared->name(), "\": ", use.batch.inverse().size(),
      " rows of ", use.row_length, " values are ", this->num_values(index),
      " numbers, not ", num_values));
}

void RowRequest::Copy(size_t index, const Parameters& values,
                      float* into) const {
  const Use& use = uses_[index];
  const absl::Span<const uint64_t> here = values.RowIds(use.table);
  const absl::Span<const uint64_t> ids = use.batch.unique();
  const float* const rows = values.RowsOf(use.table).data();
  if (here.size() == ids.size()) {
    use.batch.Spread(rows, use.row_length, into);
    return;
  }
  // `here` and `ids` are both increasing.
  std::vector<const float*> row_of(ids.size());
  size_t at = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    while (here[at] != ids[i]) ++at;
    row_of[i] = rows + at * use.row_length;
  }
  for (const uint32_t row : use.batch.inverse()) {
    std::memcpy(into, row_of[row], use.row_length * sizeof(float));
    into += use.row_length;
  }
}

}  // namespace holdfast::client
