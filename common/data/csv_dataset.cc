#include "common/data/csv_dataset.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/data/find_files.h"
#include "common/sha256.h"

namespace holdfast {
namespace {

constexpr size_t kSkippedTold = 5;

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> CsvDataset::Open(
    const proto::Csv& config) {
  std::unique_ptr<CsvDataset> dataset(new CsvDataset);
  const absl::StatusOr<std::vector<std::string>> paths =
      FindFiles({config.files().begin(), config.files().end()});
  if (!paths.ok()) return paths.status();
  for (const std::string& path : *paths) {
    absl::Status status = dataset->ReadFile(config, path);
    if (!status.ok()) return status;
  }
  if (dataset->rows_ == nullptr || dataset->num_examples() == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot read CSV file \"", paths->front(), "\"",
        paths->size() > 1 ? absl::StrCat(" and ", paths->size() - 1, " more")
                          : "",
        ": there are no rows", dataset->skipped_ > 0 ? " without faults" : "",
        dataset->skipped_because_.empty()
            ? ""
            : absl::StrCat("; the first fault: ",
                           dataset->skipped_because_.front())));
  }
  if (dataset->spec_.num_targets == 0 &&
      !dataset->spec_.num_classes.has_value()) {
    dataset->spec_.num_classes = dataset->greatest_label_ + 1;
  }
  dataset->Digest();
  return dataset;
}

absl::Status CsvDataset::ReadFile(const proto::Csv& config,
                                  const std::string& path) {
  const char delimiter =
      config.delimiter().empty() ? ',' : config.delimiter()[0];
  const auto reader = CsvReader::Open(path, delimiter);
  if (!reader.ok()) return reader.status();
  std::vector<absl::string_view> row;
  const bool has_header = !config.has_header() || config.header();
  bool first = true;
  while (true) {
    const absl::StatusOr<bool> more = (*reader)->Next(&row);
    if (!more.ok()) return more.status();
    if (!*more) return absl::OkStatus();
    if (std::exchange(first, false)) {
      absl::Status status = TakeHeader(config, **reader, row);
      if (!status.ok()) return status;
      if (has_header) continue;
    }
    absl::Status status = TakeRow(**reader, row);
    if (status.ok()) continue;
    if (!config.skip_bad_rows()) return status;
    ++skipped_;
    if (skipped_because_.size() < kSkippedTold) {
      skipped_because_.emplace_back(status.message());
    }
  }
}

absl::Status CsvDataset::TakeHeader(
    const proto::Csv& config, const CsvReader& reader,
    absl::Span<const absl::string_view> header) {
  if (schema_ == nullptr) {
    absl::StatusOr<CsvSchema> schema = CsvSchema::Create(config, header);
    if (!schema.ok()) return reader.Error(schema.status().message());
    schema_ = std::make_unique<CsvSchema>(*std::move(schema));
    spec_ = schema_->spec();
    rows_ = std::make_unique<RowStore>(schema_->cells());
    first_path_ = reader.path();
    return absl::OkStatus();
  }
  // Where there is no header TakeRow() counts the cells.
  if (config.has_header() && !config.header()) return absl::OkStatus();
  bool same = static_cast<int64_t>(header.size()) == schema_->columns();
  for (size_t i = 0; same && i < header.size(); ++i) {
    same = header[i] == schema_->name(i);
  }
  if (same) return absl::OkStatus();
  return reader.Error(
      absl::StrCat("the columns are not those of \"", first_path_,
                   "\", the first file: all have the same, in one order"));
}

absl::Status CsvDataset::TakeRow(const CsvReader& reader,
                                 absl::Span<const absl::string_view> row) {
  const int64_t size = row.size();
  if (size != schema_->columns()) {
    return reader.Error(absl::StrCat("the row has ", size, " cells, the first ",
                                     schema_->columns()));
  }
  const absl::Span<uint32_t> cells = rows_->Add();
  const absl::Status status = schema_->Pack(row, cells);
  if (!status.ok()) {
    rows_->DropLast();
    return reader.Error(status.message());
  }
  if (spec_.num_targets > 0) return absl::OkStatus();
  const int32_t label = schema_->LabelOf(cells.data());
  if (label <= greatest_label_) return absl::OkStatus();
  greatest_label_ = label;
  greatest_label_place_ =
      absl::StrCat("label ", label, " in line ", reader.line(), " of \"",
                   reader.path(), "\"");
  return absl::OkStatus();
}

void CsvDataset::Digest() {
  Sha256 sha;
  sha.Update(absl::StrCat("rows of ", rows_->cells(), " cells\n"));
  rows_->AddTo(&sha);
  digest_ = sha.HexDigest();
}

absl::Status CsvDataset::Read(int64_t index, const ExampleMemory& to) const {
  schema_->Unpack(rows_->Row(index), to);
  return absl::OkStatus();
}

std::string CsvDataset::GreatestLabelPlace() const {
  return greatest_label_place_;
}

}  // namespace holdfast
