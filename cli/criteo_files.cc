// SPDX-License-Identifier: Apache-2.0
#include "cli/criteo_files.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/portable_math.h"
#include "common/base/status_macros.h"
#include "common/data/in_order.h"

namespace holdfast {
namespace {

namespace fs = std::filesystem;
using Part = CriteoGenerator::Part;

// Number of examples that a thread makes at a time, about 1 MB of text.
constexpr int64_t kPieceExamples = 4096;

// A file of a part, with the examples from begin up to end.
struct File {
  Part part = Part::kTrain;
  std::string path;
  int64_t begin = 0;
  int64_t end = 0;
};

std::vector<File> FilesOf(const CriteoFilesOptions& options) {
  std::vector<File> files;
  for (const auto& [part, name, examples] :
       {std::tuple(Part::kTrain, "train", options.generator.examples),
        std::tuple(Part::kTest, "test", options.test_examples)}) {
    const int64_t count = std::min(options.files, examples);
    int64_t end = 0;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t begin = end;
      end += examples / count + (i < examples % count ? 1 : 0);
      files.push_back({part,
                       absl::StrFormat("%s/%s-%05d.tsv%s", options.out, name, i,
                                       options.gzip ? ".gz" : ""),
                       begin, end});
    }
  }
  return files;
}

// Whether `name` is a file of this kind, from this call or another.
bool IsOurs(const std::string& name) {
  return (absl::StartsWith(name, "train-") ||
          absl::StartsWith(name, "test-")) &&
         (absl::EndsWith(name, ".tsv") || absl::EndsWith(name, ".tsv.gz"));
}

absl::Status PrepareFolder(const std::string& out, bool force) {
  std::error_code error;
  fs::create_directories(out, error);
  std::vector<fs::path> ours;
  for (fs::directory_iterator entry(out, error), end; !error && entry != end;
       entry.increment(error)) {
    if (IsOurs(entry->path().filename())) ours.push_back(entry->path());
  }
  for (const fs::path& path : ours) {
    if (!force) {
      return absl::AlreadyExistsError(
          absl::StrCat("\"", path.string(),
                       "\" already exists; choose another folder, or replace "
                       "all files of this kind with --force"));
    }
    if (!error) fs::remove(path, error);
  }
  if (!error) return absl::OkStatus();
  return absl::ErrnoToStatus(error.value(),
                             absl::StrCat("cannot write to \"", out, "\""));
}

void Compress(const std::string& text, std::string* packed) {
  z_stream stream = {};
  // 16 selects the gzip format. Level 1 takes a third of the default level's
  // time, for a tenth more bytes.
  deflateInit2(&stream, 1, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY);
  packed->resize(deflateBound(&stream, text.size()));
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(&(*packed)[0]);
  stream.avail_out = static_cast<uInt>(packed->size());
  deflate(&stream, Z_FINISH);
  packed->resize(stream.total_out);
  deflateEnd(&stream);
}

// Some lines in the pipeline.
struct Piece {
  const File* file = nullptr;
  int64_t begin = 0;
  int64_t end = 0;
  std::string lines;
  std::string packed;
  std::vector<CriteoGenerator::Example> examples;
};

// Take, Make and Give are the stages of RunInOrder.
class Writer {
 public:
  // The arguments must outlive this.
  Writer(const CriteoFilesOptions& options, const CriteoGenerator& generator,
         const std::vector<File>& files)
      : options_(options), generator_(generator), files_(files) {
    for (int field = 0; field < kCriteoCategories; ++field) {
      counts_[field].resize(generator.cardinalities()[field] + int64_t{1});
    }
  }

  bool Take(Piece* piece);
  void Make(Piece* piece) const;
  bool Give(Piece* piece);

  absl::StatusOr<CriteoFiles> Finish();

 private:
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  absl::Status Write(const File& file, const std::string& bytes);
  absl::Status Close();
  void Count(const Piece& piece);

  const CriteoFilesOptions& options_;
  const CriteoGenerator& generator_;
  const std::vector<File>& files_;

  // State of Take.
  size_t next_file_ = 0;
  int64_t next_ = 0;

  // State of Give.
  std::unique_ptr<std::FILE, Closer> open_;
  const File* open_file_ = nullptr;
  absl::Status status_;
  std::array<std::vector<uint32_t>, kCriteoCategories> counts_;
  int64_t clicks_ = 0;
  // Logits and labels of the test part.
  std::vector<std::pair<float, bool>> logits_;
  std::vector<std::pair<float, bool>> logits_without_pairs_;
  double log_loss_ = 0;
  int64_t test_clicks_ = 0;
};

bool Writer::Take(Piece* piece) {
  if (next_file_ == files_.size()) return false;
  const File& file = files_[next_file_];
  piece->file = &file;
  piece->begin = file.begin + next_;
  piece->end = std::min(piece->begin + kPieceExamples, file.end);
  next_ += kPieceExamples;
  if (piece->end == file.end) {
    ++next_file_;
    next_ = 0;
  }
  return true;
}

void Writer::Make(Piece* piece) const {
  piece->lines.clear();
  piece->examples.clear();
  for (int64_t i = piece->begin; i < piece->end; ++i) {
    piece->examples.push_back(
        generator_.Make(piece->file->part, i, &piece->lines));
  }
  if (options_.gzip) Compress(piece->lines, &piece->packed);
}

bool Writer::Give(Piece* piece) {
  status_ = Write(*piece->file, options_.gzip ? piece->packed : piece->lines);
  if (!status_.ok()) return false;
  Count(*piece);
  return true;
}

absl::Status Writer::Write(const File& file, const std::string& bytes) {
  if (open_file_ != &file) {
    HOLDFAST_RETURN_IF_ERROR(Close());
    open_file_ = &file;
    open_.reset(std::fopen(file.path.c_str(), "wb"));
  }
  if (open_ != nullptr &&
      std::fwrite(bytes.data(), 1, bytes.size(), open_.get()) == bytes.size()) {
    return absl::OkStatus();
  }
  return absl::ErrnoToStatus(errno,
                             absl::StrCat("cannot write \"", file.path, "\""));
}

absl::Status Writer::Close() {
  if (open_ == nullptr || std::fclose(open_.release()) == 0) {
    return absl::OkStatus();
  }
  return absl::ErrnoToStatus(
      errno, absl::StrCat("cannot write \"", open_file_->path, "\""));
}

void Writer::Count(const Piece& piece) {
  if (piece.file->part == Part::kTrain) {
    for (const CriteoGenerator::Example& example : piece.examples) {
      clicks_ += example.clicked;
      for (int field = 0; field < kCriteoCategories; ++field) {
        ++counts_[field][example.ids[field]];
      }
    }
    return;
  }
  for (const CriteoGenerator::Example& example : piece.examples) {
    test_clicks_ += example.clicked;
    const double logit = example.logit;
    logits_.emplace_back(static_cast<float>(logit), example.clicked);
    logits_without_pairs_.emplace_back(
        static_cast<float>(logit - example.pairs), example.clicked);
    log_loss_ -=
        CriteoGenerator::LogProbability(example.clicked ? logit : -logit);
  }
}

absl::StatusOr<CriteoFiles> Writer::Finish() {
  if (status_.ok()) status_ = Close();
  if (!status_.ok()) return status_;
  CriteoFiles files;
  files.click_rate = static_cast<double>(clicks_) /
                     static_cast<double>(options_.generator.examples);
  for (int field = 0; field < kCriteoCategories; ++field) {
    int64_t& ids = files.ids[field];
    int64_t& least = files.least[field];
    for (const uint32_t count : counts_[field]) {
      if (count == 0) continue;
      least = ids == 0 ? count : std::min<int64_t>(least, count);
      ++ids;
    }
    if (least >= options_.generator.min_occurrences) continue;
    return absl::InternalError(
        absl::StrCat("an id of C", field + 1, " has come ", least,
                     " times, which is very unlikely; use another --seed"));
  }
  const auto tests = static_cast<double>(logits_.size());
  files.log_loss = log_loss_ / tests;
  const double rate = test_clicks_ / tests;
  for (const double share : {rate, 1 - rate}) {
    if (share > 0) files.log_loss_of_rate -= share * PortableLog(share);
  }
  files.auc = AreaUnderCurveOf(std::move(logits_));
  files.auc_without_pairs = AreaUnderCurveOf(std::move(logits_without_pairs_));
  return files;
}

}  // namespace

absl::StatusOr<CriteoFiles> WriteCriteoFiles(
    const CriteoFilesOptions& options) {
  HOLDFAST_RETURN_IF_ERROR(PrepareFolder(options.out, options.force));
  const CriteoGenerator generator(options.generator);
  const std::vector<File> files = FilesOf(options);
  Writer writer(options, generator, files);
  RunInOrder<Piece>(
      options.threads, [&](Piece* piece) { return writer.Take(piece); },
      [&](Piece* piece) { writer.Make(piece); },
      [&](Piece* piece) { return writer.Give(piece); });
  return writer.Finish();
}

}  // namespace holdfast
