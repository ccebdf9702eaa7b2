// SPDX-License-Identifier: Apache-2.0
#include "worker/offline/checkpoint_rows.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace holdfast {

absl::StatusOr<CheckpointRows> CheckpointRows::Load(
    CheckpointReader* reader, absl::Span<const ModelTable> tables) {
  CheckpointRows loaded;
  for (const ModelTable& table : tables) {
    const std::string& name = table.declared.name();
    const size_t row_length = table.declared.row_length();
    const proto::EmbeddingTable* const stored = reader->FindTable(name);
    if (stored == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("the job's model has a table \"", name,
                       "\", which the checkpoint lacks: is it another job's?"));
    }
    if (stored->row_length() != row_length) {
      return absl::InvalidArgumentError(
          absl::StrCat("table \"", name, "\" has rows of ", row_length,
                       " values in the job's model, of ", stored->row_length(),
                       " in the checkpoint"));
    }
    HOLDFAST_ASSIGN_OR_RETURN(
        auto initializer,
        RowInitializer::Create(stored->initializer(), stored->row_length(),
                               name, reader->manifest().declaration().seed()));
    Table rows{std::move(initializer), row_length};
    const uint64_t count = reader->CountRows(name, {}).rows;
    rows.places.reserve(count);
    rows.values.reserve(count * row_length);
    const absl::Status status =
        reader->ReadRows(name, {}, [&](const StoredRow& row) {
          if (row.is_candidate) return absl::OkStatus();
          rows.places.emplace(row.id,
                              static_cast<uint32_t>(rows.places.size()));
          const absl::Span<const float> values = row.floats.first(row_length);
          rows.values.insert(rows.values.end(), values.begin(), values.end());
          return absl::OkStatus();
        });
    if (!status.ok()) return status;
    loaded.tables_.push_back(std::move(rows));
  }
  return loaded;
}

absl::Status CheckpointRows::Read(Parameters* rows) const {
  for (size_t t = 0; t < tables_.size(); ++t) {
    const Table& table = tables_[t];
    const absl::Span<const uint64_t> ids = rows->RowIds(t);
    absl::Span<float> into = rows->WriteRows(t, table.row_length);
    for (const uint64_t id : ids) {
      const absl::Span<float> row = into.first(table.row_length);
      into.remove_prefix(table.row_length);
      const auto place = table.places.find(id);
      if (place == table.places.end()) {
        table.initializer.Fill(id, row);
      } else {
        std::copy_n(&table.values[place->second * table.row_length],
                    table.row_length, row.begin());
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace holdfast
