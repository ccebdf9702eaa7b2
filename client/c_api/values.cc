// SPDX-License-Identifier: Apache-2.0
#include "client/c_api/values.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/c_api/connection.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/data_file.h"
#include "common/checkpoint/directory.h"
#include "common/checkpoint/file_system.h"
#include "common/checkpoint/table_rows.h"
#include "common/tensor/digest.h"
#include "common/tensor/shape.h"

namespace holdfast::c_api {

Values::Values(std::shared_ptr<Connection> connection,
               std::shared_ptr<const Parameters> values,
               client::RowRequest rows,
               std::shared_ptr<BackgroundCalls::Call> call)
    : connection_(std::move(connection)),
      values_(std::move(values)),
      rows_(std::move(rows)),
      call_(std::move(call)),
      declared_(connection_->declared()) {}

Values::Values(std::shared_ptr<const Declared> declared,
               std::shared_ptr<const Parameters> values)
    : Values(std::move(declared), std::move(values), "", {}) {}

Values::Values(std::shared_ptr<const Declared> declared,
               std::shared_ptr<const Parameters> values, std::string folder,
               std::vector<uint64_t> num_rows)
    : values_(std::move(values)),
      here_(true),
      declared_(std::move(declared)),
      folder_(std::move(folder)),
      num_rows_(std::move(num_rows)) {}

Error Values::Await(absl::Time until) {
  if (here_) return Error();
  const bool done = Connection::Wait(
      until, given_up_,
      [this](absl::Time slice) { return call_->WaitUntilDone(slice); });
  if (given_up_) return Error(HOLDFAST_BAD_HANDLE, "the values were freed");
  if (!done) return connection_->NotYet();
  Error error = connection_->OfCall(call_->status());
  if (error.ok()) here_ = true;
  return error;
}

Error Values::Check() const {
  return here_ ? Error()
               : Invalid(
                     "the values have not arrived: call holdfast_values_wait "
                     "first");
}

void Values::GetVariable(size_t index, holdfast_variable* variable) const {
  declared_->variables[index].CopyTo(values_->Of(index).data(), variable);
}

Error Values::GetRows(size_t index, absl::Span<float> into) const {
  if (index >= rows_.size()) {
    return Invalid(
        absl::StrCat("rows of ", rows_.size(),
                     " tables were pulled; there are none with index ", index));
  }
  const absl::Status status = rows_.CheckSize(index, into.size());
  if (!status.ok()) return Invalid(std::string(status.message()));
  rows_.Copy(index, *values_, into.data());
  return Error();
}

std::string Values::Digest() const {
  const auto& variables = declared_->declaration.variables();
  return DigestOfVariables(
      std::vector<proto::Variable>(variables.begin(), variables.end()),
      values_->All());
}

Error Values::CheckTable(size_t table) const {
  if (table < num_rows_.size()) return Error();
  return Invalid(
      absl::StrCat("there is no table ", table, ", only ", num_rows_.size()));
}

Error Values::GetTable(size_t table, holdfast_table* into) const {
  Error error = CheckTable(table);
  if (error.ok()) declared_->CopyTable(table, into);
  return error;
}

Error Values::GetNumRows(size_t table, size_t* count) const {
  Error error = CheckTable(table);
  if (error.ok()) *count = num_rows_[table];
  return error;
}

Error Values::ReadTable(size_t table, absl::Span<uint64_t> ids,
                        float* values) const {
  if (Error error = CheckTable(table); !error.ok()) return error;
  const proto::EmbeddingTable& declared =
      declared_->declaration.tables(static_cast<int>(table));
  if (ids.size() != num_rows_[table]) {
    return Invalid(absl::StrCat("table \"", declared.name(), "\" has ",
                                num_rows_[table], " rows, not ", ids.size()));
  }
  const auto reader = CheckpointReader::OpenFolder(folder_, PosixFileSystem());
  if (!reader.ok()) return OfFiles(reader.status());
  const auto stored = ReadRowIds(reader->get(), declared.name());
  if (!stored.ok()) return OfFiles(stored.status());
  if (stored->size() != ids.size()) {
    return Error(HOLDFAST_DAMAGED,
                 absl::StrCat(folder_, ": table \"", declared.name(), "\" has ",
                              stored->size(), " rows, but ", ids.size(),
                              " are recorded"));
  }
  const absl::Status status = ReadRowValues(
      [&](CheckpointReader::VisitRow visit) {
        return (*reader)->ReadRows(declared.name(), {}, visit);
      },
      *stored, declared.row_length(),
      {values, ids.size() * declared.row_length()});
  if (!status.ok()) return OfFiles(status);
  std::copy(stored->begin(), stored->end(), ids.begin());
  return Error();
}

absl::StatusOr<std::shared_ptr<Values>> LoadCheckpoint(
    const std::string& path) {
  std::string folder = path;
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  const bool is_one =
      ParseFolderName(folder.substr(folder.rfind('/') + 1)).ok();
  if (!is_one) {
    HOLDFAST_ASSIGN_OR_RETURN(
        const auto directory,
        CheckpointDirectory::OpenToRead(folder, PosixFileSystem()));
    HOLDFAST_ASSIGN_OR_RETURN(const auto journal, directory.ReadJournal());
    if (journal.checkpoints().empty()) {
      return absl::NotFoundError(
          absl::StrCat(path, ": there is no durable checkpoint"));
    }
    folder = directory.Folder(*journal.checkpoints().rbegin());
  }
  HOLDFAST_ASSIGN_OR_RETURN(const auto reader, CheckpointReader::OpenFolder(
                                                   folder, PosixFileSystem()));
  const proto::Manifest& manifest = reader->manifest();
  std::vector<std::vector<float>> values;
  for (const proto::Variable& variable : manifest.declaration().variables()) {
    HOLDFAST_ASSIGN_OR_RETURN(const auto elements,
                              NumElements(variable.shape()));
    std::vector<float>& into = values.emplace_back(elements);
    HOLDFAST_RETURN_IF_ERROR(
        reader->Read(variable.name(), 0, 0, absl::MakeSpan(into)));
  }
  std::vector<uint64_t> num_rows;
  for (const auto& table : manifest.declaration().tables()) {
    num_rows.push_back(reader->CountRows(table.name(), {}).rows);
  }
  // Rows may be read from another working directory.
  std::error_code failed;
  const auto absolute = std::filesystem::absolute(folder, failed);
  return std::make_shared<Values>(
      std::make_shared<const Declared>(manifest.declaration()),
      std::make_shared<const Parameters>(GlobalStep(manifest.name().step()),
                                         std::move(values)),
      failed ? folder : absolute.string(), std::move(num_rows));
}

}  // namespace holdfast::c_api
