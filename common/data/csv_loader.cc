#include "common/data/csv_loader.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/data/csv_blocks.h"
#include "common/data/csv_rows.h"
#include "common/data/find_files.h"
#include "common/data/in_order.h"
#include "common/sha256.h"

namespace holdfast {
namespace {

constexpr size_t kSkippedTold = 5;

// Something wrong with a line, which counts from 0 in its block: where the
// block begins is not known before those in front of it are parsed.
struct Fault {
  int64_t line = 0;
  std::string what;
};

// A block on its way.
struct Piece {
  std::shared_ptr<CsvBlocks> file;
  CsvBlock block;
  bool begins_file = false;
  // Of the block, consumed with the header.
  size_t header_bytes = 0;
  int64_t header_lines = 0;

  // Ends the loading, behind the rows.
  absl::Status error;
  std::optional<Fault> stop;

  // What the rows become.
  std::vector<uint32_t> cells;
  int64_t lines = 0;
  int32_t greatest_label = -1;
  int64_t greatest_label_line = 0;
  int64_t skipped = 0;
  std::vector<Fault> skipped_because;

  // Memory is used again.
  void Clear() {
    begins_file = false;
    header_bytes = 0;
    header_lines = 0;
    error = absl::OkStatus();
    stop.reset();
    cells.clear();
    lines = 0;
    greatest_label = -1;
    skipped = 0;
    skipped_because.clear();
  }
};

// Take, Make and Give are those of RunInOrder.
class CsvLoader {
 public:
  CsvLoader(const proto::Csv& config, std::vector<std::string> paths)
      : config_(config),
        paths_(std::move(paths)),
        delimiter_(config.delimiter().empty() ? ',' : config.delimiter()[0]),
        has_header_(!config.has_header() || config.header()) {}

  bool Take(Piece* piece);
  void Make(Piece* piece) const;
  bool Give(Piece* piece);

  absl::StatusOr<LoadedCsv> Finish() &&;

 private:
  // Opens the next file where none is open, and fills the piece's block.
  // Returns false behind the last.
  absl::StatusOr<bool> TakeBlock(Piece* piece);
  // Of a piece that may begin with the header: makes the schema of the first
  // file; tests that others have its header.
  void TakeHeader(Piece* piece);
  std::optional<std::string> CheckHeader(
      const CsvBlocks& file, absl::Span<const absl::string_view> header);
  void MakeRow(absl::Span<const absl::string_view> row, int64_t line,
               Piece* piece) const;

  const proto::Csv& config_;
  const std::vector<std::string> paths_;
  const char delimiter_;
  const bool has_header_;

  // Of Take.
  size_t next_path_ = 0;
  std::shared_ptr<CsvBlocks> file_;
  bool before_header_ = false;
  bool begins_file_ = false;
  bool failed_ = false;
  std::string first_path_;

  // Made by the Take of the first row, before whatever uses it.
  std::unique_ptr<const CsvSchema> schema_;

  // Of Give.
  std::unique_ptr<RowStore> rows_;
  Sha256 sha_;
  // At which the piece begins, from 1.
  int64_t line_ = 1;
  absl::Status status_;
  LoadedCsv loaded_;
};

bool CsvLoader::Take(Piece* piece) {
  piece->Clear();
  if (failed_) return false;
  const absl::StatusOr<bool> more = TakeBlock(piece);
  if (!more.ok()) {
    piece->error = more.status();
    failed_ = true;
    return true;
  }
  if (*more && before_header_) TakeHeader(piece);
  failed_ = piece->stop.has_value();
  return *more;
}

absl::StatusOr<bool> CsvLoader::TakeBlock(Piece* piece) {
  while (true) {
    if (file_ == nullptr) {
      if (next_path_ == paths_.size()) return false;
      auto opened = CsvBlocks::Open(paths_[next_path_++], delimiter_);
      if (!opened.ok()) return opened.status();
      file_ = *std::move(opened);
      before_header_ = true;
      begins_file_ = true;
    }
    const absl::StatusOr<bool> more = file_->Next(&piece->block);
    if (!more.ok()) return more.status();
    if (*more) break;
    file_.reset();
  }
  piece->file = file_;
  piece->begins_file = std::exchange(begins_file_, false);
  return true;
}

void CsvLoader::TakeHeader(Piece* piece) {
  CsvRows rows(piece->block.text, delimiter_, piece->block.is_last);
  std::vector<absl::string_view> row;
  const CsvRows::Result result = rows.Next(&row);
  if (result == CsvRows::Result::kFault) {
    piece->stop = {rows.line(), rows.fault()};
  }
  if (result != CsvRows::Result::kRow) return;
  before_header_ = false;
  if (auto fault = CheckHeader(*piece->file, row)) {
    piece->stop = {rows.line(), *std::move(fault)};
  } else if (has_header_) {
    piece->header_bytes = rows.size();
    piece->header_lines = rows.lines();
  }
}

std::optional<std::string> CsvLoader::CheckHeader(
    const CsvBlocks& file, absl::Span<const absl::string_view> header) {
  if (schema_ == nullptr) {
    absl::StatusOr<CsvSchema> schema = CsvSchema::Create(config_, header);
    if (!schema.ok()) return std::string(schema.status().message());
    schema_ = std::make_unique<CsvSchema>(*std::move(schema));
    first_path_ = file.path();
    return std::nullopt;
  }
  // Where there is no header MakeRow() counts the cells.
  if (!has_header_) return std::nullopt;
  bool same = static_cast<int64_t>(header.size()) == schema_->columns();
  for (size_t i = 0; same && i < header.size(); ++i) {
    same = header[i] == schema_->name(i);
  }
  if (same) return std::nullopt;
  return absl::StrCat("the columns are not those of \"", first_path_,
                      "\", the first file: all have the same, in one order");
}

void CsvLoader::Make(Piece* piece) const {
  if (!piece->error.ok() || piece->stop.has_value()) return;
  const CsvBlock& block = piece->block;
  CsvRows rows(block.text.substr(piece->header_bytes), delimiter_,
               block.is_last);
  std::vector<absl::string_view> row;
  CsvRows::Result result = CsvRows::Result::kRow;
  while (!piece->stop.has_value() &&
         (result = rows.Next(&row)) == CsvRows::Result::kRow) {
    MakeRow(row, piece->header_lines + rows.line(), piece);
  }
  piece->lines = piece->header_lines + rows.lines();
  if (result == CsvRows::Result::kFault) {
    piece->stop = {piece->header_lines + rows.line(), rows.fault()};
  } else if (!piece->stop.has_value() && !block.fault.empty()) {
    piece->stop = {piece->lines, block.fault};
  }
}

void CsvLoader::MakeRow(absl::Span<const absl::string_view> row, int64_t line,
                        Piece* piece) const {
  const auto refuse = [&](std::string what) {
    if (!config_.skip_bad_rows()) {
      piece->stop = {line, std::move(what)};
      return;
    }
    ++piece->skipped;
    if (piece->skipped_because.size() < kSkippedTold) {
      piece->skipped_because.push_back({line, std::move(what)});
    }
  };
  const int64_t size = row.size();
  if (size != schema_->columns()) {
    return refuse(absl::StrCat("the row has ", size, " cells, the first ",
                               schema_->columns()));
  }
  std::vector<uint32_t>& cells = piece->cells;
  const size_t begin = cells.size();
  cells.resize(begin + schema_->cells());
  const auto packed = absl::MakeSpan(cells).subspan(begin);
  const absl::Status status = schema_->Pack(row, packed);
  if (!status.ok()) {
    cells.resize(begin);
    return refuse(std::string(status.message()));
  }
  if (schema_->spec().num_targets > 0) return;
  const int32_t label = schema_->LabelOf(packed.data());
  if (label <= piece->greatest_label) return;
  piece->greatest_label = label;
  piece->greatest_label_line = line;
}

bool CsvLoader::Give(Piece* piece) {
  if (!piece->error.ok()) {
    status_ = piece->error;
    return false;
  }
  if (piece->begins_file) line_ = 1;
  const auto error = [&](const Fault& fault) {
    return piece->file->Error(line_ + fault.line, fault.what);
  };
  if (piece->stop.has_value()) {
    status_ = error(*piece->stop);
    return false;
  }
  if (!piece->cells.empty()) {
    if (rows_ == nullptr) {
      rows_ = std::make_unique<RowStore>(schema_->cells());
      sha_.Update(absl::StrCat("rows of ", rows_->cells(), " cells\n"));
    }
    rows_->Append(piece->cells);
    sha_.Update(piece->cells.data(), piece->cells.size() * sizeof(uint32_t));
  }
  loaded_.skipped += piece->skipped;
  for (const Fault& fault : piece->skipped_because) {
    if (loaded_.skipped_because.size() == kSkippedTold) break;
    loaded_.skipped_because.emplace_back(error(fault).message());
  }
  if (piece->greatest_label > loaded_.greatest_label) {
    loaded_.greatest_label = piece->greatest_label;
    loaded_.greatest_label_place =
        absl::StrCat("label ", piece->greatest_label, " in line ",
                     line_ + piece->greatest_label_line, " of \"",
                     piece->file->path(), "\"");
  }
  line_ += piece->lines;
  return true;
}

absl::StatusOr<LoadedCsv> CsvLoader::Finish() && {
  if (!status_.ok()) return status_;
  if (rows_ == nullptr || rows_->rows() == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot read CSV file \"", paths_.front(), "\"",
        paths_.size() > 1 ? absl::StrCat(" and ", paths_.size() - 1, " more")
                          : "",
        ": there are no rows", loaded_.skipped > 0 ? " without faults" : "",
        loaded_.skipped_because.empty()
            ? ""
            : absl::StrCat("; the first fault: ",
                           loaded_.skipped_because.front())));
  }
  loaded_.schema = std::move(schema_);
  loaded_.rows = std::move(rows_);
  loaded_.digest = sha_.HexDigest();
  return std::move(loaded_);
}

}  // namespace

absl::StatusOr<LoadedCsv> LoadCsv(const proto::Csv& config, int threads) {
  absl::StatusOr<std::vector<std::string>> paths =
      FindFiles({config.files().begin(), config.files().end()});
  if (!paths.ok()) return paths.status();
  CsvLoader loader(config, *std::move(paths));
  RunInOrder<Piece>(
      threads, [&](Piece* piece) { return loader.Take(piece); },
      [&](Piece* piece) { loader.Make(piece); },
      [&](Piece* piece) { return loader.Give(piece); });
  return std::move(loader).Finish();
}

}  // namespace holdfast
