// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_DATA_TFRECORD_DATASET_H_
#define HOLDFAST_COMMON_DATA_TFRECORD_DATASET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/sha256.h"
#include "common/data/dataset.h"
#include "common/data/skipped_rows.h"
#include "common/data/tfrecord_file.h"
#include "common/data/tfrecord_schema.h"

namespace holdfast {

// The examples of TFRecord files, in the order of the files and of their
// records. All records are read and validated once, when the data set is
// opened; only their offsets are kept.
class TfRecordDataset final : public Dataset {
 public:
  // Errors: those of the system and of TfRecordReader; INVALID_ARGUMENT or
  // DATA_LOSS with file, record and feature for a record that does not fit the
  // schema or whose checksum is wrong, unless config.skip_bad_rows is set; and
  // INVALID_ARGUMENT for a pattern that matches no file, and if no record is
  // left.
  static absl::StatusOr<std::unique_ptr<Dataset>> Open(
      const proto::TfRecord& config, const Options& options);

  int64_t num_examples() const override { return index_.records(); }
  const ExampleSpec& spec() const override { return spec_; }
  absl::Status Read(int64_t index, const ExampleMemory& to) const override;
  std::string GreatestLabelPlace() const override;
  const std::string& digest() const override { return digest_; }
  Footprint footprint() const override { return footprint_; }
  int64_t skipped_rows() const override { return skipped_.count(); }
  absl::Span<const std::string> skipped_because() const override {
    return skipped_.because();
  }

 private:
  explicit TfRecordDataset(TfRecordSchema schema)
      : schema_(std::move(schema)), spec_(schema_.spec()) {}

  absl::Status ReadFile(const std::string& path, bool skip_bad_rows,
                        const ReadingOptions& options, Sha256* sha);
  absl::Status Test(const TfRecordReader& reader,
                    const TfRecordReader::Record& record,
                    TfRecordSchema::ImageDepth depth);

  const TfRecordSchema schema_;
  // The schema's spec, with the number of classes.
  ExampleSpec spec_;
  TfRecordIndex index_;
  // Input and targets of the example being validated.
  std::vector<float> input_;
  std::vector<float> targets_;
  int32_t greatest_label_ = -1;
  std::string greatest_label_place_;
  SkippedRows skipped_;
  std::string digest_;
  Footprint footprint_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_TFRECORD_DATASET_H_
