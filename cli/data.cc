// SPDX-License-Identifier: Apache-2.0
#include "cli/data.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/data_split.h"
#include "cli/inspect_images.h"
#include "cli/inspect_libsvm.h"
#include "cli/inspect_tfrecord.h"
#include "cli/table.h"
#include "common/base/printable_text.h"
#include "common/base/status_macros.h"
#include "common/data/csv_profile.h"
#include "common/data/idx.h"
#include "common/data/npy.h"
#include "common/data/typed_array.h"
#include "common/process/exit_code.h"
#include "common/tensor/shape.h"

namespace holdfast {
namespace {

constexpr char kUsage[] =
    R"(holdfast data inspect FILE... [flags]
holdfast data split FILE... --fraction=F [flags]

inspect describes training data files, in one pass over them: for CSV, the columns
with ranges, missing values and categories, and a schema to start from; for TFRecord
files, the features, in the same way; for libsvm files, labels and indices; for a
folder of images, classes, sizes and formats; for NumPy and IDX files, type, shape and
range. Patterns (*, ?, [...]) stand for all matching files. docs/data.md describes how
a job uses them.

split writes the two parts of each file next to it, as NAME-train and NAME-test: the
same examples that data.holdout of a job, with this fraction and seed, keeps for
training and holds out. CSV files form one table, whose parts have its header; NumPy
and IDX files are arrays with the same rows, whose parts are .npy files; TFRecord
files form one set of records; the files of a folder of images are copied to two such
folders. Existing files are not replaced.

  holdfast data inspect people.csv.gz --label=income
  holdfast data inspect 'part-*.tsv' --format=tsv --no_header --target=0
  holdfast data inspect train.npz:x
  holdfast data inspect 'train-*.tfrecord' --label=class
  holdfast data inspect flowers/train
  holdfast data split people.csv.gz --fraction=0.2 --seed=1
  holdfast data split x.npy y.npy --fraction=0.1 --out=parts
  holdfast data split 'train-*.tfrecord' --fraction=0.1
  holdfast data split flowers --fraction=0.2 --seed=1

Exits 0 on success, 1 when a file cannot be read, 2 for wrong flags or invalid files.

)";

constexpr size_t kValuesTold = 4;

struct DataFlags {
  std::string format;
  bool no_header = false;
  std::string label;
  std::string target;
  SplitOptions split;
};

// Adds the flags of all verbs.
void AddFormatFlags(DataFlags* flags, FlagSet* set) {
  set->Add(
      "format", "csv|tsv|npy|idx|tfrecord|libsvm|images", &flags->format,
      "Default: images for a folder; otherwise by the name: .npy and .npz,\n"
      ".tfrecord, .svm and .libsvm, names with idx, .tsv; csv for all others.");
  set->Add(
      "no_header", "", &flags->no_header,
      "The first row of CSV files is an example; columns are named by their\n"
      "position, from 0.");
}

void AddInspectFlags(DataFlags* flags, FlagSet* set) {
  set->Add(
      "label", "COLUMN", &flags->label,
      "The column, or feature, with the class to be learned. Default: the\n"
      "last column; the feature whose name ends with \"label\".");
  set->Add(
      "target", "COLUMN", &flags->target,
      "The column, or feature, with the number to be learned, instead of a\n"
      "label.");
}

void AddSplitFlags(DataFlags* flags, FlagSet* set) {
  set->Add("fraction", "F", &flags->split.fraction,
           "The share of examples for testing, above 0 and below 1. Required.");
  set->Add("seed", "N", &flags->split.seed,
           "Seed for choosing these examples. Default: 0.");
  set->Add("out", "DIR", &flags->split.out,
           "Folder for the parts. Default: next to each file.");
  set->Add("force", "", &flags->split.force,
           "Replace existing files and folders.");
}

std::string FormatOf(const std::string& file, const DataFlags& flags) {
  if (!flags.format.empty()) return flags.format;
  if (absl::EndsWith(file, ".npy") || absl::StrContains(file, ".npz")) {
    return "npy";
  }
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored)) return "images";
  const absl::string_view name =
      absl::string_view(file).substr(file.rfind('/') + 1);
  if (absl::StrContains(name, ".tfrecord")) return "tfrecord";
  if (absl::StrContains(name, ".svm") || absl::StrContains(name, ".libsvm")) {
    return "libsvm";
  }
  if (absl::StrContains(name, "idx")) return "idx";
  return absl::StrContains(name, ".tsv") ? "tsv" : "csv";
}

std::string ValuesOf(const CsvColumnProfile& column) {
  if (column.many_values) {
    return absl::StrCat("> ", CsvColumnProfile::kMostValues);
  }
  std::vector<std::pair<int64_t, std::string>> counts;
  for (const auto& [value, count] : column.values) {
    counts.emplace_back(-count, value);
  }
  std::sort(counts.begin(), counts.end());
  const size_t told = std::min(counts.size(), kValuesTold);
  return absl::StrCat(counts.size(), ": ",
                      absl::StrJoin(counts.begin(), counts.begin() + told, ", ",
                                    [](std::string* out, const auto& count) {
                                      absl::StrAppend(out,
                                                      EscapedText(count.second),
                                                      " (", -count.first, ")");
                                    }),
                      told < counts.size() ? ", ..." : "");
}

absl::Status InspectCsv(const std::vector<std::string>& files, char delimiter,
                        const DataFlags& flags) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto profile,
                            ProfileCsv(files, delimiter, !flags.no_header));
  const bool is_target = !flags.target.empty();
  std::string answer = is_target ? flags.target : flags.label;
  const bool chosen = !answer.empty();
  if (!chosen) answer = profile.columns.back().name;
  const bool known =
      std::any_of(profile.columns.begin(), profile.columns.end(),
                  [&](const auto& column) { return column.name == answer; });
  if (!known) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no column \"", answer, "\"; there are ",
                     absl::StrJoin(profile.columns, ", ",
                                   [](std::string* out, const auto& column) {
                                     out->append(column.name);
                                   })));
  }
  std::cout << profile.rows << " rows of " << profile.columns.size()
            << " columns\n";
  if (profile.uneven_rows > 0) {
    std::cout << profile.uneven_rows
              << (profile.uneven_rows == 1 ? " more row has"
                                           : " more rows have")
              << " another length; " << profile.first_uneven << "\n";
  }
  std::cout << "\n";
  Table table({{"column"},
               {"missing", true},
               {"min", true},
               {"max", true},
               {"mean", true},
               {"stddev", true},
               {"values"}});
  const auto number = [](double value) {
    return absl::StrFormat("%.6g", value);
  };
  for (const CsvColumnProfile& column : profile.columns) {
    const bool is_number = column.is_number();
    table.Add({EscapedText(column.name), absl::StrCat(column.missing),
               is_number ? number(column.min) : "",
               is_number ? number(column.max) : "",
               is_number ? number(column.mean) : "",
               is_number ? number(column.stddev) : "", ValuesOf(column)});
  }
  for (const std::string& line : table.Lines()) std::cout << line << "\n";
  std::cout << "\n# A schema to start from";
  if (!chosen) {
    std::cout
        << "; the last column is assumed to be the label, unless --label\n"
           "# or --target names another";
  }
  std::cout << ".\n"
            << SuggestSchema(profile, files, delimiter, !flags.no_header,
                             answer, is_target);
  return absl::OkStatus();
}

absl::Status InspectArray(const std::string& file, bool is_npy) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto array,
                            is_npy ? ReadNpy(file) : ReadIdx(file));
  std::vector<float> row(array.row_size());
  double min = 0, max = 0, sum = 0, squares = 0;
  int64_t finite = 0, not_finite = 0;
  for (int64_t i = 0; i < array.rows(); ++i) {
    array.ReadFloats(i * row.size(), {}, absl::MakeSpan(row));
    for (const double value : row) {
      if (!std::isfinite(value)) {
        ++not_finite;
        continue;
      }
      min = finite == 0 ? value : std::min(min, value);
      max = finite == 0 ? value : std::max(max, value);
      ++finite;
      const double before = value - sum;
      sum += before / static_cast<double>(finite);
      squares += before * (value - sum);
    }
  }
  std::cout << file << ": " << TypeName(array.type) << " "
            << ShapeString(array.shape);
  if (finite > 0) {
    std::cout << absl::StreamFormat(
        ", from %.6g to %.6g, mean %.6g, stddev %.6g", min, max, sum,
        std::sqrt(squares / static_cast<double>(finite)));
  }
  if (not_finite > 0) {
    std::cout << ", " << not_finite << " of them not finite";
  }
  std::cout << "\n";
  return absl::OkStatus();
}

// The format of the first file, which applies to all of them.
absl::StatusOr<std::string> CheckedFormat(const std::vector<std::string>& files,
                                          const DataFlags& flags) {
  if (files.empty()) {
    return absl::InvalidArgumentError(
        "no data files are given: name them after the flags");
  }
  const std::string format = FormatOf(files[0], flags);
  for (const char* known :
       {"csv", "tsv", "npy", "idx", "tfrecord", "libsvm", "images"}) {
    if (format == known) return format;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--format=", format,
                   ": must be csv, tsv, npy, idx, tfrecord, libsvm or images"));
}

absl::Status Inspect(const std::vector<std::string>& files,
                     const DataFlags& flags) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto format, CheckedFormat(files, flags));
  if (!flags.label.empty() && !flags.target.empty()) {
    return absl::InvalidArgumentError(
        "--label and --target are mutually exclusive");
  }
  if (format == "csv" || format == "tsv") {
    return InspectCsv(files, format == "csv" ? ',' : '\t', flags);
  }
  if (format == "tfrecord") {
    const bool is_target = !flags.target.empty();
    return InspectTfRecord(files, is_target ? flags.target : flags.label,
                           is_target);
  }
  if (format == "libsvm") return InspectLibsvm(files);
  for (const std::string& file : files) {
    HOLDFAST_RETURN_IF_ERROR(format == "images"
                                 ? InspectImages(file)
                                 : InspectArray(file, format == "npy"));
  }
  return absl::OkStatus();
}

absl::Status Split(const std::vector<std::string>& files,
                   const DataFlags& flags) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto format, CheckedFormat(files, flags));
  if (format == "libsvm") {
    return absl::InvalidArgumentError(
        "libsvm files cannot be split; hold examples out in the job, with "
        "data.holdout");
  }
  absl::StatusOr<std::vector<SplitPart>> parts;
  if (format == "csv" || format == "tsv") {
    parts = SplitCsv(files, format == "csv" ? ',' : '\t', !flags.no_header,
                     flags.split);
  } else if (format == "tfrecord") {
    parts = SplitTfRecord(files, flags.split);
  } else if (format != "images") {
    parts = SplitArrays(files, format == "npy", flags.split);
  } else if (files.size() == 1) {
    parts = SplitImages(files[0], flags.split);
  } else {
    return absl::InvalidArgumentError("split one folder of images at a time");
  }
  if (!parts.ok()) return parts.status();
  for (const SplitPart& part : *parts) {
    std::cout << part.path << ": " << part.examples << " examples\n";
  }
  return absl::OkStatus();
}

}  // namespace

int DataCommand(const std::vector<std::string>& args) {
  DataFlags flags;
  FlagSet inspect, split, all;
  for (FlagSet* set : {&inspect, &split, &all}) AddFormatFlags(&flags, set);
  for (FlagSet* set : {&inspect, &all}) AddInspectFlags(&flags, set);
  for (FlagSet* set : {&split, &all}) AddSplitFlags(&flags, set);
  if (std::count(args.begin(), args.end(), "--help") > 0) {
    std::cout << kUsage << "Flags:\n" << all.Help();
    return kExitDone;
  }
  const bool splits = !args.empty() && args[0] == "split";
  if (args.empty() || (args[0] != "inspect" && !splits)) {
    std::cerr << "holdfast data: "
              << (args.empty() ? "a verb is required"
                               : absl::StrCat("unknown verb \"", args[0], "\""))
              << "; --help lists them" << std::endl;
    return kExitUsage;
  }
  std::vector<std::string> files;
  size_t first_flag = 1;
  while (first_flag < args.size() && !absl::StartsWith(args[first_flag], "-")) {
    files.push_back(args[first_flag++]);
  }
  const FlagSet& set = splits ? split : inspect;
  absl::Status status =
      set.Parse(absl::MakeConstSpan(args).subspan(first_flag));
  if (status.ok())
    status = splits ? Split(files, flags) : Inspect(files, flags);
  if (status.ok()) return kExitDone;
  std::cerr << "holdfast data " << args[0] << ": " << status.message()
            << std::endl;
  return absl::IsInvalidArgument(status) ? kExitUsage : kExitFailed;
}

std::vector<CommandWords> DataWords() {
  DataFlags flags;
  FlagSet inspect, split;
  for (FlagSet* set : {&inspect, &split}) AddFormatFlags(&flags, set);
  AddInspectFlags(&flags, &inspect);
  AddSplitFlags(&flags, &split);
  return {{"data inspect", inspect.Names()}, {"data split", split.Names()}};
}

}  // namespace holdfast
