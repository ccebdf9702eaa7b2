#include "cli/table_export.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/types/span.h"
#include "cli/npy.h"

namespace holdfast {
namespace {

template <typename Number>
absl::Status Append(absl::Span<const Number> numbers, WritableFile* file) {
  return file->Append(
      absl::string_view(reinterpret_cast<const char*>(numbers.data()),
                        numbers.size() * sizeof(Number)));
}

// `ids`: of all rows, rising.
absl::Status AppendValues(CheckpointReader* reader, const std::string& table,
                          absl::Span<const uint64_t> ids, uint64_t window_bytes,
                          WritableFile* file) {
  const size_t length = reader->FindTable(table)->row_length();
  const size_t window =
      std::max<uint64_t>(1, window_bytes / (length * sizeof(float)));
  std::vector<float> values;
  while (!ids.empty()) {
    const absl::Span<const uint64_t> some = ids.subspan(0, window);
    ids.remove_prefix(some.size());
    values.resize(some.size() * length);
    absl::Status status =
        reader->ReadRows(table, {}, [&](const StoredRow& row) {
          if (row.is_candidate || row.id < some.front() ||
              row.id > some.back()) {
            return absl::OkStatus();
          }
          const size_t i =
              std::lower_bound(some.begin(), some.end(), row.id) - some.begin();
          std::copy_n(row.floats.begin(), length, &values[i * length]);
          return absl::OkStatus();
        });
    if (status.ok()) status = Append(absl::MakeConstSpan(values), file);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status ExportTable(CheckpointReader* reader, const std::string& table,
                         const std::string& path, uint64_t window_bytes) {
  std::vector<uint64_t> ids;
  ids.reserve(reader->CountRows(table, {}).rows);
  const absl::Status read =
      reader->ReadRows(table, {}, [&](const StoredRow& row) {
        if (!row.is_candidate) ids.push_back(row.id);
        return absl::OkStatus();
      });
  if (!read.ok()) return read;
  std::sort(ids.begin(), ids.end());
  const auto rows = static_cast<int64_t>(ids.size());
  const int64_t length = reader->FindTable(table)->row_length();
  return ReplaceFile(
      absl::StrCat(path, ".ids.npy"), [&](WritableFile* ids_file) {
        absl::Status status = ids_file->Append(NpyHeader("<u8", {rows}));
        if (status.ok()) status = Append(absl::MakeConstSpan(ids), ids_file);
        if (!status.ok()) return status;
        return ReplaceFile(absl::StrCat(path, ".values.npy"), [&](WritableFile*
                                                                      file) {
          absl::Status written = file->Append(NpyHeader("<f4", {rows, length}));
          if (!written.ok()) return written;
          return AppendValues(reader, table, ids, window_bytes, file);
        });
      });
}

}  // namespace

absl::Status ExportTables(CheckpointReader* reader,
                          const std::vector<std::string>& tables,
                          const std::string& output, uint64_t window_bytes) {
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
  for (const auto& [path, table] : by_path) {
    absl::Status status = ExportTable(reader, table, path, window_bytes);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace holdfast
