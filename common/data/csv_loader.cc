// SPDX-License-Identifier: Apache-2.0
#include "common/data/csv_loader.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"
#include "common/data/byte_sink.h"
#include "common/data/csv_blocks.h"
#include "common/data/csv_reader.h"
#include "common/data/csv_rows.h"
#include "common/data/data_cache.h"
#include "common/data/find_files.h"
#include "common/data/in_order.h"
#include "common/data/reading_progress.h"
#include "common/data/skipped_rows.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"

namespace holdfast {
namespace {

// An error in a line, counted from 0 within its block, because the block's
// first line is not known before the preceding blocks are parsed.
struct Fault {
  int64_t line = 0;
  std::string what;
};

// A block being processed.
struct Piece {
  std::shared_ptr<CsvBlocks> file;
  CsvBlock block;
  bool begins_file = false;
  // The number of bytes of the header at the beginning of the block.
  size_t header_bytes = 0;
  int64_t header_lines = 0;

  // The error that ends the loading once the piece's rows have been taken.
  absl::Status error;
  std::optional<Fault> stop;

  // The cells of the rows.
  std::vector<uint32_t> cells;
  int64_t lines = 0;
  int32_t greatest_label = -1;
  int64_t greatest_label_line = 0;
  int64_t skipped = 0;
  std::vector<Fault> skipped_because;

  // The number of bytes of the file on disk that were read for the block.
  int64_t file_bytes = 0;

  // Keeps the memory for reuse.
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

char DelimiterOf(const proto::Csv& config) {
  return config.delimiter().empty() ? ',' : config.delimiter()[0];
}

// Take, Make and Give are the steps of RunInOrder.
class CsvLoader {
 public:
  // Receives the cells of whole rows, in their order.
  using TakeRows = absl::FunctionRef<absl::Status(
      const CsvSchema& schema, absl::Span<const uint32_t> rows)>;

  // The arguments must outlive the loader.
  CsvLoader(const CsvTable& table, const std::vector<std::string>& paths,
            ReadingProgress* progress, TakeRows take_rows)
      : config_(table.config),
        names_(table.names),
        paths_(paths),
        progress_(progress),
        take_rows_(take_rows),
        delimiter_(DelimiterOf(config_)),
        has_header_(!config_.has_header() || config_.header()) {
    notes_.set_greatest_label(-1);
  }

  bool Take(Piece* piece);
  void Make(Piece* piece) const;
  bool Give(Piece* piece);

  // Also sets *schema.
  absl::StatusOr<proto::CsvNotes> Finish(
      std::unique_ptr<const CsvSchema>* schema);

 private:
  // Opens the next file if none is open, and fills the piece's block. Returns
  // false after the last block.
  absl::StatusOr<bool> TakeBlock(Piece* piece);
  // For a piece that may begin with the header: makes the schema from the first
  // file, and checks that the other files have the same header.
  void TakeHeader(Piece* piece);
  std::optional<std::string> CheckHeader(
      const CsvBlocks& file, absl::Span<const absl::string_view> header);
  void MakeRow(absl::Span<const absl::string_view> row, int64_t line,
               Piece* piece) const;

  const proto::Csv& config_;
  const std::vector<std::string>& names_;
  const std::vector<std::string>& paths_;
  ReadingProgress* const progress_;
  const TakeRows take_rows_;
  const char delimiter_;
  const bool has_header_;

  // Used by Take.
  size_t next_path_ = 0;
  std::shared_ptr<CsvBlocks> file_;
  bool before_header_ = false;
  bool begins_file_ = false;
  bool failed_ = false;
  std::string first_path_;

  // Made by the Take of the first row, before any use.
  std::unique_ptr<const CsvSchema> schema_;

  // Used by Give.
  int64_t rows_ = 0;
  Sha256 sha_;
  // The line at which the piece begins, from 1.
  int64_t line_ = 1;
  absl::Status status_;
  proto::CsvNotes notes_;
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
      HOLDFAST_ASSIGN_OR_RETURN(
          auto opened, CsvBlocks::Open(paths_[next_path_++], delimiter_));
      file_ = std::move(opened);
      before_header_ = true;
      begins_file_ = true;
    }
    const int64_t file_offset = file_->file().file_offset();
    HOLDFAST_ASSIGN_OR_RETURN(const auto more, file_->Next(&piece->block));
    piece->file_bytes = file_->file().file_offset() - file_offset;
    if (more) break;
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
    absl::StatusOr<CsvSchema> schema =
        CsvSchema::Create(config_, header, names_);
    if (!schema.ok()) return std::string(schema.status().message());
    schema_ = std::make_unique<CsvSchema>(*std::move(schema));
    first_path_ = file.path();
    return std::nullopt;
  }
  // Without a header MakeRow() checks the number of cells.
  if (!has_header_) return std::nullopt;
  bool same = static_cast<int64_t>(header.size()) == schema_->columns();
  for (size_t i = 0; same && i < header.size(); ++i) {
    same = header[i] == schema_->name(i);
  }
  if (same) return std::nullopt;
  return absl::StrCat("the columns differ from those of \"", first_path_,
                      "\", the first file; all files must have the same "
                      "columns in the same order");
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
    if (piece->skipped_because.size() < SkippedRows::kTold) {
      piece->skipped_because.push_back({line, std::move(what)});
    }
  };
  const int64_t size = row.size();
  if (size != schema_->columns()) {
    return refuse(absl::StrCat("the row has ", size, " cells, the first has ",
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
    if (rows_ == 0) {
      sha_.Update(absl::StrCat("rows of ", schema_->cells(), " cells\n"));
    }
    sha_.Update(piece->cells.data(), piece->cells.size() * sizeof(uint32_t));
    status_ = take_rows_(*schema_, piece->cells);
    if (!status_.ok()) return false;
  }
  const int64_t rows =
      piece->cells.empty()
          ? 0
          : static_cast<int64_t>(piece->cells.size()) / schema_->cells();
  rows_ += rows;
  if (progress_ != nullptr) progress_->Add(piece->file_bytes, rows);
  notes_.set_skipped(notes_.skipped() + piece->skipped);
  for (const Fault& fault : piece->skipped_because) {
    if (notes_.skipped_because_size() == int{SkippedRows::kTold}) break;
    notes_.add_skipped_because(std::string(error(fault).message()));
  }
  if (piece->greatest_label > notes_.greatest_label()) {
    notes_.set_greatest_label(piece->greatest_label);
    notes_.set_greatest_label_place(
        absl::StrCat("label ", piece->greatest_label, " in line ",
                     line_ + piece->greatest_label_line, " of \"",
                     piece->file->path(), "\""));
  }
  line_ += piece->lines;
  return true;
}

absl::StatusOr<proto::CsvNotes> CsvLoader::Finish(
    std::unique_ptr<const CsvSchema>* schema) {
  if (!status_.ok()) return status_;
  if (rows_ == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot read CSV file \"", paths_.front(), "\"",
        paths_.size() > 1 ? absl::StrCat(" and ", paths_.size() - 1, " more")
                          : "",
        ": there are no rows", notes_.skipped() > 0 ? " without errors" : "",
        notes_.skipped_because().empty()
            ? ""
            : absl::StrCat("; the first error: ", notes_.skipped_because(0))));
  }
  notes_.set_digest(sha_.HexDigest());
  *schema = std::move(schema_);
  return notes_;
}

// The schema from the first file that has a row, as in CsvLoader.
absl::StatusOr<CsvSchema> SchemaOf(const CsvTable& table,
                                   const std::vector<std::string>& paths) {
  std::vector<absl::string_view> header;
  for (const std::string& path : paths) {
    HOLDFAST_ASSIGN_OR_RETURN(auto reader,
                              CsvReader::Open(path, DelimiterOf(table.config)));
    HOLDFAST_ASSIGN_OR_RETURN(const auto has_row, reader->Next(&header));
    if (has_row) return CsvSchema::Create(table.config, header, table.names);
  }
  return absl::InternalError("a row has disappeared");
}

absl::StatusOr<DataCache::Key> KeyOf(const CsvTable& table,
                                     const std::vector<std::string>& paths) {
  DataCache::Key key("csv");
  proto::Csv schema = table.config;
  schema.clear_files();
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream out(&stream);
    out.SetSerializationDeterministic(true);
    schema.SerializeToCodedStream(&out);
  }
  key.Add(bytes);
  for (const std::string& name : table.names) key.Add(name);
  for (const std::string& path : paths) {
    HOLDFAST_RETURN_IF_ERROR(key.AddFile(path));
  }
  return key;
}

void BeginProgress(const std::vector<std::string>& paths,
                   ReadingProgress* progress) {
  int64_t total = 0;
  for (const std::string& path : paths) {
    std::error_code error;
    const uintmax_t size = std::filesystem::file_size(path, error);
    if (!error) total += static_cast<int64_t>(size);
  }
  const std::string others =
      paths.size() > 1 ? absl::StrCat(" and ", paths.size() - 1, " more") : "";
  progress->Begin(absl::StrCat("\"", paths.front(), "\"", others), total);
}

absl::StatusOr<proto::CsvNotes> Parse(
    const CsvTable& table, const std::vector<std::string>& paths,
    const ReadingOptions& options, CsvLoader::TakeRows take_rows,
    std::unique_ptr<const CsvSchema>* schema) {
  if (options.progress != nullptr) BeginProgress(paths, options.progress);
  CsvLoader loader(table, paths, options.progress, take_rows);
  RunInOrder<Piece>(
      options.threads, [&](Piece* piece) { return loader.Take(piece); },
      [&](Piece* piece) { loader.Make(piece); },
      [&](Piece* piece) { return loader.Give(piece); });
  return loader.Finish(schema);
}

absl::Status LoadIntoMemory(const CsvTable& table,
                            const std::vector<std::string>& paths,
                            const ReadingOptions& options, LoadedCsv* loaded) {
  std::unique_ptr<RowStore> store;
  auto notes = Parse(
      table, paths, options,
      [&](const CsvSchema& schema, absl::Span<const uint32_t> rows) {
        if (store == nullptr) {
          store = std::make_unique<RowStore>(schema.cells());
        }
        store->Append(rows);
        return absl::OkStatus();
      },
      &loaded->schema);
  if (!notes.ok()) return notes.status();
  loaded->notes = *std::move(notes);
  loaded->rows = std::move(store);
  return absl::OkStatus();
}

absl::Status LoadFromCache(const CsvTable& table,
                           const std::vector<std::string>& paths,
                           const ReadingOptions& options, LoadedCsv* loaded) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto key, KeyOf(table, paths));
  const auto entry = options.cache->Get(
      key, [&](ByteSink* payload, std::string* text) -> absl::Status {
        const auto notes = Parse(
            table, paths, options,
            [payload](const CsvSchema&, absl::Span<const uint32_t> rows) {
              return payload->Append(
                  {reinterpret_cast<const uint8_t*>(rows.data()),
                   rows.size() * sizeof(uint32_t)});
            },
            &loaded->schema);
        if (notes.ok()) *text = notes->SerializeAsString();
        return notes.status();
      });
  if (!entry.ok()) return entry.status();
  if (!loaded->notes.ParseFromString(entry->notes)) {
    return absl::DataLossError(
        absl::StrCat("the data cache's file of \"", paths.front(),
                     "\" is damaged; remove it, and it will be made again"));
  }
  if (loaded->schema == nullptr) {
    // The rows come from the cache: another process has parsed them.
    HOLDFAST_ASSIGN_OR_RETURN(auto schema, SchemaOf(table, paths));
    loaded->schema = std::make_unique<CsvSchema>(std::move(schema));
  }
  loaded->rows = std::make_unique<RowStore>(loaded->schema->cells(),
                                            entry->bytes, entry->owner);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LoadedCsv> LoadCsv(const CsvTable& table,
                                  const ReadingOptions& options) {
  const auto& patterns = table.config.files();
  const absl::StatusOr<std::vector<std::string>> paths =
      FindFiles({patterns.begin(), patterns.end()});
  if (!paths.ok()) return paths.status();
  const auto load = options.cache == nullptr ? &LoadIntoMemory : &LoadFromCache;
  LoadedCsv loaded;
  HOLDFAST_RETURN_IF_ERROR(load(table, *paths, options, &loaded));
  return loaded;
}

}  // namespace holdfast
