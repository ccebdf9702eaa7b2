// SPDX-License-Identifier: Apache-2.0
#include "common/data/computed_fields.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/printable_text.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "common/data/csv_reader.h"
#include "common/data/csv_schema.h"
#include "common/data/dataset.h"
#include "common/data/find_files.h"
#include "common/data/image_folder.h"
#include "common/data/parse_number.h"
#include "common/data/reading_progress.h"
#include "common/data/tf_example.h"
#include "common/data/tfrecord_file.h"
#include "common/job/job_file.h"
#include "google/protobuf/util/message_differencer.h"

namespace holdfast {
namespace {

using google::protobuf::RepeatedPtrField;
using google::protobuf::util::MessageDifferencer;

// The number of rows between progress reports.
constexpr int64_t kTellRows = 4096;

template <typename Parts>
bool AnyComputed(const Parts& parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [](const auto& part) { return IsComputed(part); });
}

bool AnyComputed(const proto::Dataset& dataset) {
  return AnyComputed(dataset.csv().columns()) ||
         AnyComputed(dataset.tfrecord().features());
}

bool LacksClasses(const proto::Dataset& dataset) {
  return dataset.has_images() && dataset.images().classes().empty();
}

// Mean and deviation of a sequence of numbers.
class Moments {
 public:
  void Add(double value) {
    ++count_;
    const double before = value - mean_;
    mean_ += before / static_cast<double>(count_);
    squares_ += before * (value - mean_);
  }

  int64_t count() const { return count_; }
  double mean() const { return mean_; }
  double stddev() const {
    const double stddev = std::sqrt(squares_ / static_cast<double>(count_));
    return stddev > 0 ? stddev : 1;
  }

 private:
  int64_t count_ = 0;
  double mean_ = 0;
  double squares_ = 0;
};

// The result for a column or feature. Only one of the two is filled.
struct Found {
  Moments moments;
  std::set<std::string, std::less<>> values;

  void AddValue(absl::string_view value) {
    if (values.find(value) == values.end()) values.emplace(value);
  }
};

// Sets the fields of a number, or the values, from `found`.
template <typename Number>
void SetMoments(const Found& found, Number* number) {
  number->clear_computed();
  number->set_mean(found.moments.mean());
  number->set_stddev(found.moments.stddev());
}
template <typename Values>
void SetValues(const Found& found, Values* values) {
  values->clear_computed();
  values->mutable_values()->Assign(found.values.begin(), found.values.end());
}

bool IsUtf8(absl::string_view text) {
  while (!text.empty()) {
    const size_t length = Utf8CharacterBytes(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

// Checks that something was found and can be declared.
// Errors: INVALID_ARGUMENT, with the name of the column or feature.
absl::Status Check(const Found& found, absl::string_view what,
                   absl::string_view name) {
  const auto error = [&](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot compute ", what, " \"", EscapedText(name),
                     "\" of the training set: ", why));
  };
  if (found.moments.count() == 0 && found.values.empty()) {
    return error("it has no values");
  }
  for (const std::string& value : found.values) {
    if (IsUtf8(value)) continue;
    return error(absl::StrCat("the value \"", absl::CEscape(value),
                              "\" is not UTF-8: convert the files"));
  }
  return absl::OkStatus();
}

// An entry of a table as written in the job file, and the entries that replace
// it.
template <typename Part>
struct Resolved {
  Part written;
  std::vector<Part> parts;
};

template <typename Part>
void Replace(const std::vector<Resolved<Part>>& resolved,
             RepeatedPtrField<Part>* parts) {
  parts->Clear();
  for (const Resolved<Part>& each : resolved) {
    for (const Part& part : each.parts) *parts->Add() = part;
  }
}

// Fills in the test set's computed entries, which must also be in the training
// set.
template <typename Part>
absl::Status FillInTest(const std::vector<Resolved<Part>>& train,
                        RepeatedPtrField<Part>* parts) {
  std::vector<Resolved<Part>> test;
  for (const Part& part : *parts) {
    test.push_back({part, {part}});
    if (!IsComputed(part)) continue;
    const auto same = std::find_if(
        train.begin(), train.end(), [&part](const Resolved<Part>& each) {
          return MessageDifferencer::Equals(each.written, part);
        });
    if (same == train.end()) {
      return absl::InvalidArgumentError(
          "data.test: its computed fields must be in data.train in the same "
          "words");
    }
    test.back().parts = same->parts;
  }
  Replace(test, parts);
  return absl::OkStatus();
}

// ---- CSV ----

// A column of the file from whose values fields are computed.
struct CsvComputation {
  int64_t column = 0;
  bool is_number = false;
  // For numbers.
  bool log1p = false;
  Found found;
};

// One for each column that `column` refers to, in its order.
absl::StatusOr<std::vector<CsvComputation>> ComputationsOf(
    const proto::CsvColumn& column, absl::Span<const std::string> names,
    bool header) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto places,
                            FindCsvColumns(column, names, header));
  std::vector<CsvComputation> computations;
  for (const int64_t place : places) {
    computations.push_back(
        {place, column.has_number(), column.number().log1p(), {}});
  }
  return computations;
}

void AddCell(absl::string_view text, const proto::Csv& config,
             CsvComputation* computation) {
  const auto& missing = config.missing();
  if (text.empty() ||
      std::find(missing.begin(), missing.end(), text) != missing.end()) {
    return;
  }
  double number = 0;
  if (!computation->is_number) {
    computation->found.AddValue(text);
  } else if (ParseFinite(text, &number)) {
    computation->found.moments.Add(computation->log1p ? CsvLog1p(number)
                                                      : number);
  }
}

// `written`, resolved for one column.
absl::StatusOr<proto::CsvColumn> ResolvedColumn(
    const proto::CsvColumn& written, absl::Span<const std::string> names,
    bool header, const CsvComputation& computation) {
  const std::string& name = names[computation.column];
  HOLDFAST_RETURN_IF_ERROR(Check(computation.found, "column", name));
  proto::CsvColumn column = written;
  column.clear_name();
  column.clear_range();
  // A name with a star would also match other columns.
  if (header && !absl::StrContains(name, '*') && IsUtf8(name)) {
    column.add_name(name);
  } else {
    column.add_range()->set_first(static_cast<uint32_t>(computation.column));
  }
  if (column.has_number()) {
    SetMoments(computation.found, column.mutable_number());
  } else if (column.has_category()) {
    SetValues(computation.found, column.mutable_category());
  } else {
    SetValues(computation.found, column.mutable_label());
  }
  return column;
}

absl::StatusOr<std::vector<Resolved<proto::CsvColumn>>> ComputeCsv(
    const proto::Csv& config, const ReadingOptions& reading) {
  const auto paths = FindFiles({config.files().begin(), config.files().end()});
  if (!paths.ok()) return paths.status();
  const bool has_header = !config.has_header() || config.header();
  const char delimiter =
      config.delimiter().empty() ? ',' : config.delimiter()[0];
  std::vector<std::string> names;
  // Indexed by column of the job file.
  std::vector<std::vector<CsvComputation>> computations(config.columns_size());
  std::vector<absl::string_view> row;
  for (const std::string& path : *paths) {
    HOLDFAST_ASSIGN_OR_RETURN(const auto reader,
                              CsvReader::Open(path, delimiter));
    if (reading.progress != nullptr) {
      reading.progress->Begin(
          absl::StrCat("\"", path, "\" for computed fields"),
          /*total_bytes=*/0);
    }
    bool is_header = has_header;
    int64_t bytes = 0;
    for (int64_t rows = 0;; ++rows) {
      HOLDFAST_ASSIGN_OR_RETURN(const auto more, reader->Next(&row));
      if (!more) break;
      for (const absl::string_view cell : row) {
        bytes += static_cast<int64_t>(cell.size()) + 1;
      }
      if (reading.progress != nullptr && rows % kTellRows == kTellRows - 1) {
        reading.progress->Add(std::exchange(bytes, 0), kTellRows);
      }
      if (names.empty()) {
        for (size_t i = 0; i < row.size(); ++i) {
          names.push_back(has_header ? std::string(row[i]) : absl::StrCat(i));
        }
        for (int i = 0; i < config.columns_size(); ++i) {
          if (!IsComputed(config.columns(i))) continue;
          auto made = ComputationsOf(config.columns(i), names, has_header);
          if (!made.ok()) {
            return absl::Status(
                made.status().code(),
                absl::StrCat("cannot read CSV file \"", path, "\": line ",
                             reader->line(), ": ", made.status().message()));
          }
          computations[i] = *std::move(made);
        }
      }
      if (std::exchange(is_header, false) || row.size() != names.size()) {
        continue;
      }
      for (std::vector<CsvComputation>& of_part : computations) {
        for (CsvComputation& computation : of_part) {
          AddCell(row[computation.column], config, &computation);
        }
      }
    }
  }
  std::vector<Resolved<proto::CsvColumn>> resolved;
  for (int i = 0; i < config.columns_size(); ++i) {
    const proto::CsvColumn& written = config.columns(i);
    resolved.push_back({written, {}});
    if (!IsComputed(written)) resolved.back().parts = {written};
    for (const CsvComputation& computation : computations[i]) {
      HOLDFAST_ASSIGN_OR_RETURN(
          auto column, ResolvedColumn(written, names, has_header, computation));
      resolved.back().parts.push_back(std::move(column));
    }
    if (resolved.back().parts.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "cannot read CSV file \"", paths->front(), "\": there are no rows"));
    }
  }
  return resolved;
}

// ---- TFRecord ----

void AddFeature(const TfFeature& feature, bool is_numbers, Found* found) {
  if (!is_numbers) {
    if (feature.kind != TfFeature::kBytes) return;
    feature.ForEachBytes(
        [found](absl::string_view value) { found->AddValue(value); });
    return;
  }
  if (feature.kind == TfFeature::kFloats) {
    std::vector<float> values(feature.num_floats());
    feature.ReadFloats(values.data());
    for (const float value : values) {
      if (std::isfinite(value)) found->moments.Add(value);
    }
  } else if (feature.kind == TfFeature::kIntegers) {
    feature.ForEachInteger([found](int64_t value) {
      found->moments.Add(static_cast<double>(value));
    });
  }
}

absl::StatusOr<std::vector<Resolved<proto::TfRecordFeature>>> ComputeTfRecord(
    const proto::TfRecord& config, const ReadingOptions& reading) {
  const auto paths = FindFiles({config.files().begin(), config.files().end()});
  if (!paths.ok()) return paths.status();
  // Indexed by feature of the job file.
  std::vector<Found> found(config.features_size());
  absl::flat_hash_map<std::string, int> places;
  for (int i = 0; i < config.features_size(); ++i) {
    if (IsComputed(config.features(i))) places[config.features(i).name()] = i;
  }
  TfExample example;
  for (const std::string& path : *paths) {
    HOLDFAST_ASSIGN_OR_RETURN(auto reader, TfRecordReader::Open(path, reading));
    if (reading.progress != nullptr) {
      reading.progress->Begin(
          absl::StrCat("\"", path, "\" for computed fields"),
          static_cast<int64_t>(reader.file().bytes.size()));
    }
    TfRecordReader::Record record;
    int64_t told = 0;
    for (int64_t records = 1;; ++records) {
      HOLDFAST_ASSIGN_OR_RETURN(const auto more, reader.Next(&record));
      if (!more) break;
      if (reading.progress != nullptr && records % kTellRows == 0) {
        reading.progress->Add(
            record.offset - std::exchange(told, record.offset), kTellRows);
      }
      if (!record.intact || !example.Parse(record.data)) continue;
      for (const TfFeature& feature : example.features()) {
        const auto place = places.find(feature.name);
        if (place == places.end()) continue;
        AddFeature(feature, config.features(place->second).has_numbers(),
                   &found[place->second]);
      }
    }
  }
  std::vector<Resolved<proto::TfRecordFeature>> resolved;
  for (int i = 0; i < config.features_size(); ++i) {
    const proto::TfRecordFeature& written = config.features(i);
    resolved.push_back({written, {written}});
    if (!IsComputed(written)) continue;
    HOLDFAST_RETURN_IF_ERROR(Check(found[i], "feature", written.name()));
    proto::TfRecordFeature& feature = resolved.back().parts[0];
    if (feature.has_numbers()) {
      SetMoments(found[i], feature.mutable_numbers());
    } else {
      SetValues(found[i], feature.mutable_label());
    }
  }
  return resolved;
}

// ---- Arrays and images ----

absl::Status ComputeNormalization(const ReadingOptions& reading,
                                  proto::Data* data) {
  Dataset::Options options = Dataset::OptionsOf(*data);
  options.mean = 0;
  options.stddev = 1;
  options.reading = reading;
  HOLDFAST_ASSIGN_OR_RETURN(const auto dataset,
                            Dataset::Open(data->train(), options));
  const ExampleSpec& spec = dataset->spec();
  std::vector<float> input(spec.input_size());
  std::vector<float> targets(spec.num_targets);
  int32_t label = 0;
  float weight = 0;
  if (reading.progress != nullptr) {
    reading.progress->Begin("the training set for its mean",
                            /*total_bytes=*/0);
  }
  Moments moments;
  for (int64_t i = 0; i < dataset->num_examples(); ++i) {
    const absl::Status status = dataset->Read(
        i, {absl::MakeSpan(input), &label, absl::MakeSpan(targets), &weight});
    if (!status.ok()) return status;
    for (const float value : input) moments.Add(value);
    if (reading.progress != nullptr) {
      reading.progress->Add(static_cast<int64_t>(input.size() * sizeof(float)),
                            1);
    }
  }
  proto::Normalization* const normalization = data->mutable_normalization();
  normalization->clear_computed();
  normalization->set_mean(static_cast<float>(moments.mean()));
  normalization->set_stddev(static_cast<float>(moments.stddev()));
  return absl::OkStatus();
}

// Copies the entries of one data set's table.
absl::Status CopyParts(const proto::Dataset& resolved, const char* path,
                       proto::Dataset* dataset) {
  if (!AnyComputed(*dataset)) return absl::OkStatus();
  if (resolved.kind_case() != dataset->kind_case() || AnyComputed(resolved)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path,
                     " has fields that are computed, but the job was "
                     "declared without them"));
  }
  if (dataset->has_csv()) {
    *dataset->mutable_csv()->mutable_columns() = resolved.csv().columns();
  } else {
    *dataset->mutable_tfrecord()->mutable_features() =
        resolved.tfrecord().features();
  }
  return absl::OkStatus();
}

void CopyClasses(const proto::Images& from, proto::Dataset* dataset) {
  if (!LacksClasses(*dataset)) return;
  *dataset->mutable_images()->mutable_classes() = from.classes();
}

}  // namespace

bool HasComputedFields(const proto::Data& data) {
  return AnyComputed(data.train()) || AnyComputed(data.test()) ||
         data.normalization().computed();
}

bool HasOpenFields(const proto::Data& data) {
  return HasComputedFields(data) || LacksClasses(data.train()) ||
         LacksClasses(data.test());
}

absl::Status FillInComputedFields(const ReadingOptions& reading,
                                  proto::Data* data) {
  if (data->normalization().computed()) {
    HOLDFAST_RETURN_IF_ERROR(ComputeNormalization(reading, data));
  }
  proto::Dataset* const train = data->mutable_train();
  // A test set of a different format takes nothing from the training set.
  std::vector<Resolved<proto::CsvColumn>> columns;
  std::vector<Resolved<proto::TfRecordFeature>> features;
  if (AnyComputed(train->csv().columns())) {
    HOLDFAST_ASSIGN_OR_RETURN(auto computed, ComputeCsv(train->csv(), reading));
    columns = std::move(computed);
    Replace(columns, train->mutable_csv()->mutable_columns());
  }
  if (AnyComputed(train->tfrecord().features())) {
    HOLDFAST_ASSIGN_OR_RETURN(auto computed,
                              ComputeTfRecord(train->tfrecord(), reading));
    features = std::move(computed);
    Replace(features, train->mutable_tfrecord()->mutable_features());
  }
  if (!data->has_test()) return absl::OkStatus();
  proto::Dataset* const test = data->mutable_test();
  if (test->has_csv()) {
    return FillInTest(columns, test->mutable_csv()->mutable_columns());
  }
  if (test->has_tfrecord()) {
    return FillInTest(features, test->mutable_tfrecord()->mutable_features());
  }
  return absl::OkStatus();
}

absl::Status CopyOpenFields(const proto::Data& resolved, proto::Data* data) {
  if (data->normalization().computed()) {
    if (resolved.normalization().computed() || !resolved.has_normalization()) {
      return absl::InvalidArgumentError(
          "data.normalization is computed, but the job was declared without "
          "it");
    }
    *data->mutable_normalization() = resolved.normalization();
  }
  HOLDFAST_RETURN_IF_ERROR(
      CopyParts(resolved.train(), "data.train", data->mutable_train()));
  CopyClasses(resolved.train().images(), data->mutable_train());
  if (!data->has_test()) return absl::OkStatus();
  HOLDFAST_RETURN_IF_ERROR(
      CopyParts(resolved.test(), "data.test", data->mutable_test()));
  CopyClasses(resolved.train().images(), data->mutable_test());
  return absl::OkStatus();
}

absl::Status FillInImageClasses(proto::Data* data) {
  if (!data->train().has_images()) return absl::OkStatus();
  proto::Images* const images = data->mutable_train()->mutable_images();
  if (images->classes().empty()) {
    const auto classes = ListImageClasses(images->folder(), {});
    if (!classes.ok()) return classes.status();
    for (const ImageClass& each : *classes) {
      if (!IsUtf8(each.name)) {
        return absl::InvalidArgumentError(absl::StrCat(
            "cannot read the images in \"", images->folder(),
            "\": the name of the folder \"", absl::CEscape(each.name),
            "\" is not UTF-8: rename it"));
      }
      images->add_classes(each.name);
    }
  }
  if (!data->test().has_images()) return absl::OkStatus();
  CopyClasses(*images, data->mutable_test());
  const auto& tested = data->test().images().classes();
  if (std::equal(tested.begin(), tested.end(), images->classes().begin(),
                 images->classes().end())) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "data.test.images.classes are ", absl::StrJoin(tested, ", "),
      ", those of the training set ", absl::StrJoin(images->classes(), ", "),
      ": leave them out, or name the same in the same order"));
}

}  // namespace holdfast
