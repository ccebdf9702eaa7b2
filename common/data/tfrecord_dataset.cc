// SPDX-License-Identifier: Apache-2.0
#include "common/data/tfrecord_dataset.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/data/find_files.h"

namespace holdfast {
namespace {

// The number of bytes between progress reports.
constexpr int64_t kTellBytes = 4 << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> TfRecordDataset::Open(
    const proto::TfRecord& config, const Options& options) {
  HOLDFAST_ASSIGN_OR_RETURN(auto schema,
                            TfRecordSchema::Create(config, options));
  const absl::StatusOr<std::vector<std::string>> paths =
      FindFiles({config.files().begin(), config.files().end()});
  if (!paths.ok()) return paths.status();
  std::unique_ptr<TfRecordDataset> dataset(
      new TfRecordDataset(std::move(schema)));
  Sha256 sha;
  sha.Update("records of tf.train.Example\n");
  for (const std::string& path : *paths) {
    HOLDFAST_RETURN_IF_ERROR(
        dataset->ReadFile(path, config.skip_bad_rows(), options.reading, &sha));
  }
  const SkippedRows& skipped = dataset->skipped_;
  if (dataset->num_examples() == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot read TFRecord file \"", paths->front(), "\"",
        paths->size() > 1 ? absl::StrCat(" and ", paths->size() - 1, " more")
                          : "",
        ": there are no records", skipped.count() > 0 ? " without errors" : "",
        skipped.count() > 0
            ? absl::StrCat("; the first error: ", skipped.because().front())
            : ""));
  }
  if (dataset->greatest_label_ >= 0 &&
      !dataset->spec_.num_classes.has_value()) {
    dataset->spec_.num_classes = dataset->greatest_label_ + 1;
  }
  dataset->index_.Finish();
  dataset->footprint_.memory += dataset->index_.bytes();
  dataset->input_ = {};
  dataset->digest_ = sha.HexDigest();
  return dataset;
}

absl::Status TfRecordDataset::ReadFile(const std::string& path,
                                       bool skip_bad_rows,
                                       const ReadingOptions& options,
                                       Sha256* sha) {
  HOLDFAST_ASSIGN_OR_RETURN(auto reader, TfRecordReader::Open(path, options));
  const FileBytes& file = reader.file();
  (file.mapped ? footprint_.mapped : footprint_.memory) += file.bytes.size();
  if (options.progress != nullptr) {
    options.progress->Begin(absl::StrCat("\"", path, "\""), file.bytes.size());
  }
  int64_t told = 0;
  index_.AddFile(path, reader.file());
  TfRecordReader::Record record;
  while (true) {
    HOLDFAST_ASSIGN_OR_RETURN(const auto more, reader.Next(&record));
    if (!more) return absl::OkStatus();
    if (options.progress != nullptr && record.offset - told >= kTellBytes) {
      options.progress->Add(record.offset - std::exchange(told, record.offset));
    }
    if (absl::Status status =
            Test(reader, record,
                 skip_bad_rows ? TfRecordSchema::ImageDepth::kPixels
                               : TfRecordSchema::ImageDepth::kHeader);
        !status.ok()) {
      if (!skip_bad_rows) return status;
      skipped_.Add(status);
      continue;
    }
    index_.Add(record.offset);
    const uint64_t size = record.data.size();
    sha->Update(&size, sizeof(size));
    sha->Update(record.data);
  }
}

absl::Status TfRecordDataset::Test(const TfRecordReader& reader,
                                   const TfRecordReader::Record& record,
                                   TfRecordSchema::ImageDepth depth) {
  if (!record.intact) {
    return reader.Error(
        absl::StatusCode::kDataLoss,
        "its checksum is wrong: the file is damaged; get it again, or leave "
        "such records out with `skip_bad_rows: true`");
  }
  input_.resize(spec_.input_size());
  targets_.resize(spec_.num_targets);
  int32_t label = -1;
  float weight = 1;
  const absl::Status status = schema_.Read(
      record.data, depth,
      {absl::MakeSpan(input_), &label, absl::MakeSpan(targets_), &weight});
  if (!status.ok()) return reader.Error(status.code(), status.message());
  if (label > greatest_label_) {
    greatest_label_ = label;
    greatest_label_place_ =
        absl::StrCat("label ", label, " of record ", reader.records() - 1,
                     " (from 0) in \"", reader.path(), "\"");
  }
  return absl::OkStatus();
}

absl::Status TfRecordDataset::Read(int64_t index,
                                   const ExampleMemory& to) const {
  HOLDFAST_ASSIGN_OR_RETURN(const auto record, index_.Read(index));
  const absl::Status status =
      schema_.Read(record, TfRecordSchema::ImageDepth::kPixels, to);
  if (status.ok()) return status;
  return absl::Status(
      status.code(), absl::StrCat(index_.Place(index), ": ", status.message()));
}

std::string TfRecordDataset::GreatestLabelPlace() const {
  return greatest_label_place_;
}

}  // namespace holdfast
