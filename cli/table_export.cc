// SPDX-License-Identifier: Apache-2.0
#include "cli/table_export.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/types/span.h"
#include "cli/npy.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/table_rows.h"

namespace holdfast {
namespace {

template <typename Number>
absl::Status Append(absl::Span<const Number> numbers, WritableFile* file) {
  return file->Append(
      absl::string_view(reinterpret_cast<const char*>(numbers.data()),
                        numbers.size() * sizeof(Number)));
}

// `source` visits the same rows in the same order each time. `ids` are the ids
// of all rows, in increasing order.
absl::Status AppendValues(RowSource source, absl::Span<const uint64_t> ids,
                          size_t row_length, uint64_t window_bytes,
                          WritableFile* file) {
  const size_t window =
      std::max<uint64_t>(1, window_bytes / (row_length * sizeof(float)));
  std::vector<float> values;
  while (!ids.empty()) {
    const absl::Span<const uint64_t> some = ids.subspan(0, window);
    ids.remove_prefix(some.size());
    values.resize(some.size() * row_length);
    absl::Status status =
        ReadRowValues(source, some, row_length, absl::MakeSpan(values));
    if (status.ok()) status = Append(absl::MakeConstSpan(values), file);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status AppendIds(absl::Span<const uint64_t> ids, WritableFile* file) {
  absl::Status status =
      file->Append(NpyHeader("<u8", {static_cast<int64_t>(ids.size())}));
  return status.ok() ? Append(ids, file) : status;
}

// Replaces PATH.ids.npy and PATH.values.npy.
absl::Status WriteRows(const std::string& path, RowSource source,
                       absl::Span<const uint64_t> ids, size_t row_length,
                       uint64_t window_bytes) {
  return ReplaceFile(
      absl::StrCat(path, ".ids.npy"), [&](WritableFile* ids_file) {
        HOLDFAST_RETURN_IF_ERROR(AppendIds(ids, ids_file));
        return ReplaceFile(
            absl::StrCat(path, ".values.npy"), [&](WritableFile* file) {
              absl::Status written = file->Append(
                  NpyHeader("<f4", {static_cast<int64_t>(ids.size()),
                                    static_cast<int64_t>(row_length)}));
              if (!written.ok()) return written;
              return AppendValues(source, ids, row_length, window_bytes, file);
            });
      });
}

absl::Status ExportTable(CheckpointReader* reader, const std::string& table,
                         const std::string& path, uint64_t window_bytes) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto ids, ReadRowIds(reader, table));
  const auto source = [&](CheckpointReader::VisitRow visit) {
    return reader->ReadRows(table, {}, visit);
  };
  return WriteRows(path, source, ids, reader->FindTable(table)->row_length(),
                   window_bytes);
}

absl::StatusOr<TableChanges> ExportChangesOf(CheckpointReader* reader,
                                             const std::string& table,
                                             uint64_t since_step,
                                             const std::string& path,
                                             uint64_t window_bytes) {
  std::vector<uint64_t> ids;
  std::vector<uint64_t> removed;
  absl::Status status = reader->ReadChanges(
      table, {}, since_step,
      [&](const StoredRow& row) {
        ids.push_back(row.id);
        return absl::OkStatus();
      },
      [&](uint32_t, uint64_t id) {
        removed.push_back(id);
        return absl::OkStatus();
      });
  if (!status.ok()) return status;
  std::sort(ids.begin(), ids.end());
  std::sort(removed.begin(), removed.end());
  const auto source = [&](CheckpointReader::VisitRow visit) {
    return reader->ReadChanges(
        table, {}, since_step, visit,
        [](uint32_t, uint64_t) { return absl::OkStatus(); });
  };
  status =
      ReplaceFile(absl::StrCat(path, ".removed.npy"), [&](WritableFile* file) {
        HOLDFAST_RETURN_IF_ERROR(AppendIds(removed, file));
        return WriteRows(path, source, ids,
                         reader->FindTable(table)->row_length(), window_bytes);
      });
  if (!status.ok()) return status;
  return TableChanges{table, ids.size(), removed.size()};
}

// Tables by the prefix of the names of their files.
absl::StatusOr<std::map<std::string, std::string>> PathsOf(
    const std::vector<std::string>& tables, const std::string& output) {
  const std::string stem =
      std::filesystem::path(output).replace_extension().string();
  std::map<std::string, std::string> by_path;
  for (const std::string& table : tables) {
    const std::string path =
        absl::StrCat(stem, ".", absl::StrReplaceAll(table, {{"/", "."}}));
    const auto [other, is_new] = by_path.emplace(path, table);
    if (!is_new) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tables \"", other->second, "\" and \"", table, "\" would both be ",
          path, ".values.npy: export one at a time, with --variables"));
    }
  }
  return by_path;
}

}  // namespace

absl::Status ExportTables(CheckpointReader* reader,
                          const std::vector<std::string>& tables,
                          const std::string& output, uint64_t window_bytes) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto by_path, PathsOf(tables, output));
  for (const auto& [path, table] : by_path) {
    HOLDFAST_RETURN_IF_ERROR(ExportTable(reader, table, path, window_bytes));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TableChanges>> ExportTableChanges(
    CheckpointReader* reader, const std::vector<std::string>& tables,
    uint64_t since_step, const std::string& output, uint64_t window_bytes) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto by_path, PathsOf(tables, output));
  std::vector<TableChanges> changes;
  for (const auto& [path, table] : by_path) {
    HOLDFAST_ASSIGN_OR_RETURN(
        auto of_table,
        ExportChangesOf(reader, table, since_step, path, window_bytes));
    changes.push_back(std::move(of_table));
  }
  return changes;
}

}  // namespace holdfast
