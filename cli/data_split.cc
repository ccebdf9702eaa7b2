// SPDX-License-Identifier: Apache-2.0
#include "cli/data_split.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "common/data/csv_reader.h"
#include "common/data/find_files.h"
#include "common/data/idx.h"
#include "common/data/image_folder.h"
#include "common/data/npy.h"
#include "common/data/subset_dataset.h"
#include "common/data/tfrecord_file.h"
#include "common/data/tfrecord_frame.h"
#include "common/data/typed_array.h"

namespace holdfast {
namespace {

namespace fs = std::filesystem;

std::string Aside(const SplitPart& part) { return part.path + ".tmp"; }

// Errors: ALREADY_EXISTS, unless `force`.
absl::Status CheckFree(const fs::path& path, bool force) {
  std::error_code error;
  if (force || !fs::exists(path, error)) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat(
      "\"", path.string(),
      "\" already exists; --force replaces it, --out sets another folder"));
}

absl::Status CannotWrite(const std::string& path,
                         const std::error_code& error) {
  return absl::ErrnoToStatus(error.value(),
                             absl::StrCat("cannot write \"", path, "\""));
}

// Files that get their names once all of them are complete.
class Outputs {
 public:
  explicit Outputs(bool force) : force_(force) {}
  ~Outputs() {
    files_.clear();
    std::error_code ignored;
    for (const SplitPart& part : parts_) fs::remove(Aside(part), ignored);
  }

  // Adds a file with this path. Errors: ALREADY_EXISTS; those of the system.
  absl::Status Add(const fs::path& path) {
    if (!paths_.insert(path).second) {
      return absl::InvalidArgumentError(absl::StrCat(
          "two files have parts with the same name, \"", path.string(),
          "\": split them one at a time, with different --out"));
    }
    HOLDFAST_RETURN_IF_ERROR(CheckFree(path, force_));
    parts_.push_back({path.string(), 0});
    files_.push_back(std::make_unique<std::ofstream>(
        Aside(parts_.back()), std::ios::binary | std::ios::trunc));
    return Check(files_.size() - 1);
  }

  void Write(size_t file, absl::string_view bytes) {
    files_[file]->write(bytes.data(),
                        static_cast<std::streamsize>(bytes.size()));
  }
  void AddExample(size_t file) { ++parts_[file].examples; }

  absl::StatusOr<std::vector<SplitPart>> Finish() {
    for (size_t i = 0; i < files_.size(); ++i) {
      files_[i]->close();
      HOLDFAST_RETURN_IF_ERROR(Check(i));
    }
    for (const SplitPart& part : parts_) {
      std::error_code error;
      fs::rename(Aside(part), part.path, error);
      if (error) return CannotWrite(part.path, error);
    }
    return parts_;
  }

 private:
  absl::Status Check(size_t file) const {
    if (files_[file]->good()) return absl::OkStatus();
    return absl::ErrnoToStatus(
        errno, absl::StrCat("cannot write \"", parts_[file].path, "\""));
  }

  const bool force_;
  std::set<fs::path> paths_;
  std::vector<SplitPart> parts_;
  std::vector<std::unique_ptr<std::ofstream>> files_;
};

// The two parts of a folder, train and test, which get their names once both
// are complete.
class OutputFolders {
 public:
  // Creates the parts of the folder `name`. Errors: ALREADY_EXISTS.
  static absl::StatusOr<std::unique_ptr<OutputFolders>> Create(
      const fs::path& folder, const std::string& name, bool force) {
    std::unique_ptr<OutputFolders> outputs(new OutputFolders);
    for (const char* part : {"-train", "-test"}) {
      const fs::path path = folder / absl::StrCat(name, part);
      HOLDFAST_RETURN_IF_ERROR(CheckFree(path, force));
      outputs->parts_.push_back({path.string(), 0});
      std::error_code ignored;
      fs::remove_all(Aside(outputs->parts_.back()), ignored);
    }
    return outputs;
  }
  ~OutputFolders() {
    std::error_code ignored;
    for (const SplitPart& part : parts_) fs::remove_all(Aside(part), ignored);
  }

  // Creates a folder in both parts.
  absl::Status AddFolder(const std::string& name) {
    for (const SplitPart& part : parts_) {
      std::error_code error;
      fs::create_directories(fs::path(Aside(part)) / name, error);
      if (error) return CannotWrite(part.path, error);
    }
    return absl::OkStatus();
  }

  // Copies `from` to `name`, in a folder that was added, in one of the parts.
  absl::Status AddFile(bool test, const fs::path& from,
                       const std::string& name) {
    SplitPart& part = parts_[test ? 1 : 0];
    std::error_code error;
    fs::copy_file(from, fs::path(Aside(part)) / name, error);
    if (error) return CannotWrite(absl::StrCat(part.path, "/", name), error);
    ++part.examples;
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<SplitPart>> Finish() {
    for (const SplitPart& part : parts_) {
      std::error_code error;
      fs::remove_all(part.path, error);
      if (!error) fs::rename(Aside(part), part.path, error);
      if (error) return CannotWrite(part.path, error);
    }
    return parts_;
  }

 private:
  OutputFolders() = default;

  std::vector<SplitPart> parts_;
};

absl::Status CheckFraction(double fraction) {
  if (fraction > 0 && fraction < 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--fraction=", fraction,
      ": must be the share of examples for testing, above 0 and below 1"));
}

// Adds the files of the two parts of the file `name`, train and test.
absl::Status AddParts(const fs::path& folder, const std::string& name,
                      const std::string& extension, Outputs* outputs) {
  for (const char* part : {"-train", "-test"}) {
    HOLDFAST_RETURN_IF_ERROR(
        outputs->Add(folder / absl::StrCat(name, part, extension)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<bool>> InTest(int64_t examples,
                                         const SplitOptions& options) {
  proto::Holdout holdout;
  holdout.set_fraction(options.fraction);
  holdout.set_seed(options.seed);
  return HeldOutExamples(examples, holdout);
}

std::string RowOf(const std::vector<absl::string_view>& cells, char delimiter) {
  const std::string special = {'"', '\r', '\n', delimiter};
  std::string row;
  for (size_t i = 0; i < cells.size(); ++i) {
    if (i > 0) row += delimiter;
    const absl::string_view cell = cells[i];
    // Unquoted, surrounding blanks would be stripped when the cell is read, and
    // an empty line is not a row.
    const bool quoted =
        cell.find_first_of(special) != absl::string_view::npos ||
        absl::StripAsciiWhitespace(cell) != cell ||
        (cells.size() == 1 && cell.empty());
    if (!quoted) {
      row.append(cell.data(), cell.size());
      continue;
    }
    row += '"';
    for (const char c : cell) row.append(c == '"' ? 2 : 1, c);
    row += '"';
  }
  return row + "\n";
}

// Calls take(file, is_header, cells) for each row of the files.
template <typename Take>
absl::Status ForEachRow(const std::vector<std::string>& files, char delimiter,
                        bool header, Take take) {
  std::vector<absl::string_view> cells;
  for (size_t file = 0; file < files.size(); ++file) {
    HOLDFAST_ASSIGN_OR_RETURN(auto reader,
                              CsvReader::Open(files[file], delimiter));
    for (bool is_header = header;; is_header = false) {
      HOLDFAST_ASSIGN_OR_RETURN(const auto more, reader->Next(&cells));
      if (!more) break;
      take(file, is_header, cells);
    }
  }
  return absl::OkStatus();
}

const char* Letter(ElementType type) {
  switch (type) {
    case ElementType::kUint8:
    case ElementType::kUint16:
    case ElementType::kUint32:
    case ElementType::kUint64:
      return "u";
    case ElementType::kFloat32:
    case ElementType::kFloat64:
      return "f";
    default:
      return "i";
  }
}

// The header for `rows` rows of the array, in numpy.lib.format version 1.
std::string NpyHeader(const TypedArray& array, int64_t rows) {
  const int64_t size = TypeSize(array.type);
  std::vector<int64_t> shape = array.shape;
  shape[0] = rows;
  std::string header = absl::StrCat(
      "{'descr': '", size == 1 ? "|" : (array.big_endian ? ">" : "<"),
      Letter(array.type), size, "', 'fortran_order': False, 'shape': (",
      absl::StrJoin(shape, ", "), shape.size() == 1 ? "," : "", "), }");
  constexpr size_t kPreamble = 10;
  constexpr size_t kAlignment = 64;
  const size_t unpadded = kPreamble + header.size() + 1;
  header.append((kAlignment - unpadded % kAlignment) % kAlignment, ' ');
  header += '\n';
  std::string file("\x93NUMPY\1\0", 8);
  file += static_cast<char>(header.size() & 0xff);
  file += static_cast<char>(header.size() >> 8);
  return file + header;
}

// Returns "people" for "dir/people.csv.gz", and sets `extension` to that of its
// parts, ".csv".
std::string NameOf(const fs::path& file, std::string* extension) {
  fs::path name = file.filename();
  if (name.extension() == ".gz") name = name.stem();
  *extension = name.extension().string();
  return name.stem().string();
}

fs::path FolderOf(const fs::path& file, const SplitOptions& options) {
  return options.out.empty() ? file.parent_path() : fs::path(options.out);
}

// Adds the parts of file i as outputs 2 i and 2 i + 1.
absl::Status AddPartsOf(const std::vector<std::string>& files,
                        const SplitOptions& options, Outputs* outputs) {
  for (const std::string& file : files) {
    std::string extension;
    const std::string name = NameOf(file, &extension);
    HOLDFAST_RETURN_IF_ERROR(
        AddParts(FolderOf(file, options), name, extension, outputs));
  }
  return absl::OkStatus();
}

// Calls take(file, record) for each record of the files.
template <typename Take>
absl::Status ForEachRecord(const std::vector<std::string>& files, Take take) {
  for (size_t file = 0; file < files.size(); ++file) {
    HOLDFAST_ASSIGN_OR_RETURN(auto reader, TfRecordReader::Open(files[file]));
    TfRecordReader::Record record;
    for (;;) {
      HOLDFAST_ASSIGN_OR_RETURN(const auto more, reader.Next(&record));
      if (!more) break;
      if (!record.intact) {
        return reader.Error(
            absl::StatusCode::kDataLoss,
            "its checksum is wrong: the file is damaged; download it again");
      }
      take(file, record.data);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<SplitPart>> SplitCsv(
    const std::vector<std::string>& files, char delimiter, bool header,
    const SplitOptions& options) {
  absl::Status status = CheckFraction(options.fraction);
  if (!status.ok()) return status;
  HOLDFAST_ASSIGN_OR_RETURN(const auto found, FindFiles(files));
  Outputs outputs(options.force);
  status = AddPartsOf(found, options, &outputs);
  if (!status.ok()) return status;
  int64_t rows = 0;
  status = ForEachRow(
      found, delimiter, header,
      [&](size_t, bool is_header, const auto&) { rows += is_header ? 0 : 1; });
  if (!status.ok()) return status;
  HOLDFAST_ASSIGN_OR_RETURN(const auto in_test, InTest(rows, options));
  int64_t row = 0;
  status = ForEachRow(found, delimiter, header,
                      [&](size_t file, bool is_header, const auto& cells) {
                        const std::string text = RowOf(cells, delimiter);
                        if (is_header) {
                          outputs.Write(2 * file, text);
                          outputs.Write(2 * file + 1, text);
                          return;
                        }
                        const size_t part = 2 * file + (in_test[row++] ? 1 : 0);
                        outputs.Write(part, text);
                        outputs.AddExample(part);
                      });
  if (!status.ok()) return status;
  return outputs.Finish();
}

absl::StatusOr<std::vector<SplitPart>> SplitArrays(
    const std::vector<std::string>& files, bool is_npy,
    const SplitOptions& options) {
  absl::Status status = CheckFraction(options.fraction);
  if (!status.ok()) return status;
  std::vector<TypedArray> arrays;
  Outputs outputs(options.force);
  for (const std::string& file : files) {
    HOLDFAST_ASSIGN_OR_RETURN(auto array,
                              is_npy ? ReadNpy(file) : ReadIdx(file));
    if (!arrays.empty() && array.rows() != arrays[0].rows()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "\"", files[0], "\" has ", arrays[0].rows(), " rows, \"", file, "\" ",
          array.rows(),
          "; arrays of one data set must have the same number of rows"));
    }
    arrays.push_back(std::move(array));
    const size_t colon = is_npy ? file.rfind(".npz:") : std::string::npos;
    const fs::path path = file.substr(0, colon);
    std::string extension;
    std::string name = NameOf(path, &extension);
    if (colon != std::string::npos) {
      absl::StrAppend(&name, "-", file.substr(colon + 5));
    } else if (!is_npy) {
      absl::StrAppend(&name, extension);
    }
    status = AddParts(FolderOf(path, options), name, ".npy", &outputs);
    if (!status.ok()) return status;
  }
  const int64_t rows = arrays[0].rows();
  HOLDFAST_ASSIGN_OR_RETURN(const auto in_test, InTest(rows, options));
  int64_t test_rows = 0;
  for (const bool is : in_test) test_rows += is ? 1 : 0;
  for (size_t i = 0; i < arrays.size(); ++i) {
    const TypedArray& array = arrays[i];
    outputs.Write(2 * i, NpyHeader(array, rows - test_rows));
    outputs.Write(2 * i + 1, NpyHeader(array, test_rows));
    const int64_t size = array.row_size() * TypeSize(array.type);
    for (int64_t row = 0; row < rows; ++row) {
      const size_t part = 2 * i + (in_test[row] ? 1 : 0);
      const auto bytes = array.bytes.subspan(row * size, size);
      outputs.Write(
          part,
          absl::string_view(reinterpret_cast<const char*>(bytes.data()), size));
      outputs.AddExample(part);
    }
  }
  return outputs.Finish();
}

absl::StatusOr<std::vector<SplitPart>> SplitTfRecord(
    const std::vector<std::string>& files, const SplitOptions& options) {
  absl::Status status = CheckFraction(options.fraction);
  if (!status.ok()) return status;
  HOLDFAST_ASSIGN_OR_RETURN(const auto found, FindFiles(files));
  Outputs outputs(options.force);
  status = AddPartsOf(found, options, &outputs);
  if (!status.ok()) return status;
  int64_t records = 0;
  status = ForEachRecord(found, [&](size_t, auto) { ++records; });
  if (!status.ok()) return status;
  HOLDFAST_ASSIGN_OR_RETURN(const auto in_test, InTest(records, options));
  int64_t record = 0;
  std::string frame;
  status = ForEachRecord(found, [&](size_t file, absl::string_view data) {
    const size_t part = 2 * file + (in_test[record++] ? 1 : 0);
    frame.clear();
    AppendTfRecord(data, &frame);
    outputs.Write(part, frame);
    outputs.AddExample(part);
  });
  if (!status.ok()) return status;
  return outputs.Finish();
}

absl::StatusOr<std::vector<SplitPart>> SplitImages(
    const std::string& folder, const SplitOptions& options) {
  absl::Status status = CheckFraction(options.fraction);
  if (!status.ok()) return status;
  const auto classes = ListImageClasses(folder, {});
  if (!classes.ok()) return classes.status();
  // Removes a trailing slash, and makes sure that the folder has a name for its
  // parts.
  fs::path path = folder;
  if (!path.has_filename()) path = path.parent_path();
  if (path.filename() == "." || path.filename() == "..") {
    path = fs::absolute(path / "").lexically_normal().parent_path();
  }
  HOLDFAST_ASSIGN_OR_RETURN(
      auto outputs,
      OutputFolders::Create(FolderOf(path, options), path.filename().string(),
                            options.force));
  int64_t images = 0;
  for (const ImageClass& each : *classes) {
    images += static_cast<int64_t>(each.files.size());
  }
  HOLDFAST_ASSIGN_OR_RETURN(const auto in_test, InTest(images, options));
  int64_t image = 0;
  for (const ImageClass& each : *classes) {
    status = outputs->AddFolder(each.name);
    if (!status.ok()) return status;
    for (const std::string& file : each.files) {
      const std::string name = absl::StrCat(each.name, "/", file);
      status = outputs->AddFile(in_test[image++], path / name, name);
      if (!status.ok()) return status;
    }
  }
  return outputs->Finish();
}

}  // namespace holdfast
