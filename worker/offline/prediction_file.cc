// SPDX-License-Identifier: Apache-2.0
#include "worker/offline/prediction_file.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "common/base/status_macros.h"
#include "worker/model/click_model.h"

namespace holdfast {
namespace {

constexpr size_t kFlushBytes = 1 << 20;

// Formats a cell according to RFC 4180.
std::string Cell(const std::string& text) {
  const bool plain = text.find_first_of(",\"\r\n") == std::string::npos &&
                     !absl::StartsWith(text, " ") && !absl::EndsWith(text, " ");
  return plain ? text
               : absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}),
                              "\"");
}

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

std::vector<double> Softmax(absl::Span<const float> outputs) {
  const float greatest = *std::max_element(outputs.begin(), outputs.end());
  std::vector<double> values;
  double sum = 0;
  for (const float output : outputs) {
    values.push_back(std::exp(static_cast<double>(output) - greatest));
    sum += values.back();
  }
  for (double& value : values) value /= sum;
  return values;
}

// The names of classes or targets in the data.
std::vector<std::string> NamesIn(const proto::Dataset& dataset) {
  const auto& folders = dataset.images().classes();
  std::vector<std::string> names(folders.begin(), folders.end());
  for (const proto::TfRecordFeature& feature : dataset.tfrecord().features()) {
    const auto& values = feature.label().values();
    names.insert(names.end(), values.begin(), values.end());
  }
  for (const proto::CsvColumn& column : dataset.csv().columns()) {
    if (column.has_label()) {
      return {column.label().values().begin(), column.label().values().end()};
    }
    if (!column.has_target()) continue;
    names.insert(names.end(), column.name().begin(), column.name().end());
  }
  return names;
}

}  // namespace

PredictionColumns ColumnsOf(const proto::Job& job, int64_t num_outputs,
                            bool predict_class) {
  using Kind = PredictionColumns::Kind;
  PredictionColumns columns;
  const proto::Loss& loss = job.model().sequential().loss();
  if (loss.has_softmax_cross_entropy()) columns.kind = Kind::kSoftmax;
  if (loss.has_sigmoid_cross_entropy() || IsClickModel(job.model())) {
    columns.kind = Kind::kSigmoid;
  }
  columns.classes = predict_class;
  columns.names = NamesIn(job.data().train());
  const int64_t wanted = predict_class && num_outputs == 1 ? 2 : num_outputs;
  if (static_cast<int64_t>(columns.names.size()) != wanted) {
    columns.names.clear();
  }
  return columns;
}

std::string PredictionHeader(const PredictionColumns& columns,
                             int64_t num_outputs) {
  using Kind = PredictionColumns::Kind;
  std::string line = "example";
  if (columns.file_of) line += ",file";
  if (columns.classes) line += ",class";
  const bool single = num_outputs == 1;
  for (int64_t i = 0; i < num_outputs; ++i) {
    const std::string name =
        columns.names.empty() || (single && columns.classes)
            ? (single ? "" : absl::StrCat(i))
            : columns.names[i];
    const std::string kind =
        columns.kind == Kind::kNumbers ? "output" : "probability";
    const bool is_target = !columns.classes && !columns.names.empty();
    absl::StrAppend(
        &line, ",",
        Cell(is_target ? name
                       : absl::StrCat(kind, name.empty() ? "" : "_", name)));
  }
  return line + "\n";
}

std::string PredictionLine(const PredictionColumns& columns, int64_t example,
                           absl::Span<const float> outputs) {
  using Kind = PredictionColumns::Kind;
  std::string line = absl::StrCat(example);
  if (columns.file_of) {
    absl::StrAppend(&line, ",", Cell(columns.file_of(example)));
  }
  if (columns.classes) {
    const size_t predicted =
        outputs.size() == 1 ? (outputs[0] > 0 ? 1 : 0)
                            : std::max_element(outputs.begin(), outputs.end()) -
                                  outputs.begin();
    absl::StrAppend(&line, ",",
                    columns.names.empty() ? absl::StrCat(predicted)
                                          : Cell(columns.names[predicted]));
  }
  const auto add = [&line](double value) {
    // 9 digits distinguish any two float32 values.
    absl::StrAppendFormat(&line, ",%.9g", value);
  };
  switch (columns.kind) {
    case Kind::kSoftmax:
      for (const double value : Softmax(outputs)) add(value);
      break;
    case Kind::kSigmoid:
      for (const float output : outputs) add(Sigmoid(output));
      break;
    case Kind::kNumbers:
      for (const float output : outputs) add(output);
      break;
  }
  return line + "\n";
}

absl::StatusOr<std::unique_ptr<PredictionFile>> PredictionFile::Create(
    const std::string& path, PredictionColumns columns, int64_t num_outputs) {
  HOLDFAST_ASSIGN_OR_RETURN(auto file,
                            PosixFileSystem()->Create(path + ".tmp"));
  return std::unique_ptr<PredictionFile>(new PredictionFile(
      path, std::move(columns), num_outputs, std::move(file)));
}

PredictionFile::PredictionFile(std::string path, PredictionColumns columns,
                               int64_t num_outputs,
                               std::unique_ptr<WritableFile> file)
    : path_(std::move(path)),
      columns_(std::move(columns)),
      num_outputs_(num_outputs),
      file_(std::move(file)),
      text_(PredictionHeader(columns_, num_outputs)) {}

PredictionFile::~PredictionFile() {
  if (!finished_) PosixFileSystem()->Remove(path_ + ".tmp").IgnoreError();
}

absl::Status PredictionFile::Add(absl::Span<const float> outputs) {
  for (; !outputs.empty(); outputs.remove_prefix(num_outputs_)) {
    text_ +=
        PredictionLine(columns_, next_example_++, outputs.first(num_outputs_));
  }
  return text_.size() < kFlushBytes ? absl::OkStatus() : Flush();
}

absl::Status PredictionFile::Flush() {
  const absl::Status status = file_->Append(text_);
  text_.clear();
  return status;
}

absl::Status PredictionFile::Finish() {
  absl::Status status = Flush();
  if (status.ok()) status = file_->Close();
  if (status.ok()) status = PosixFileSystem()->Rename(path_ + ".tmp", path_);
  finished_ = status.ok();
  return status;
}

}  // namespace holdfast
