// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_DATA_LIBSVM_DATASET_H_
#define HOLDFAST_COMMON_DATA_LIBSVM_DATASET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/sha256.h"
#include "common/data/dataset.h"
#include "common/data/file_bytes.h"
#include "common/data/libsvm_line.h"
#include "common/data/skipped_rows.h"

namespace holdfast {

// The examples of libsvm files, in the order of the files and of their lines.
// All lines are read and validated once, when the data set is opened; only
// their offsets are kept.
//
// There is one field of ids, "features"; its max_ids is the number of features
// of the line that has the most, so it may differ between test set and training
// set.
class LibsvmDataset final : public Dataset {
 public:
  // Errors: those of FindFiles and ReadFileBytes; INVALID_ARGUMENT with file
  // and line for a line that is not an example, unless config.skip_bad_rows is
  // set; for labels of which some are -1, and others neither -1 nor 1; and if
  // no line is left.
  static absl::StatusOr<std::unique_ptr<Dataset>> Open(
      const proto::Libsvm& config, const Options& options);

  int64_t num_examples() const override { return offsets_.size(); }
  const ExampleSpec& spec() const override { return spec_; }
  absl::Status Read(int64_t index, const ExampleMemory& to) const override;
  std::string GreatestLabelPlace() const override {
    return greatest_label_place_;
  }
  const std::string& digest() const override { return digest_; }
  Footprint footprint() const override { return footprint_; }
  int64_t skipped_rows() const override { return skipped_.count(); }
  absl::Span<const std::string> skipped_because() const override {
    return skipped_.because();
  }

 private:
  struct File {
    std::string path;
    FileBytes file;
    // The number of examples in the files before it.
    int64_t first = 0;
  };
  // A line, for messages.
  struct Place {
    std::string path;
    int64_t line = 0;
  };

  LibsvmDataset(const proto::Libsvm& config, const Options& options)
      : unlabeled_(options.unlabeled),
        targets_(config.targets() && !options.unlabeled),
        skip_bad_rows_(config.skip_bad_rows()) {}

  absl::Status ReadFile(const std::string& path, const ReadingOptions& options,
                        Sha256* sha);
  // Validates the line that begins at `offset` of the last file, and keeps its
  // offset.
  // Errors: INVALID_ARGUMENT for a bad line; FAILED_PRECONDITION if it
  // contradicts the lines before it.
  absl::Status TakeLine(absl::string_view text, int64_t offset, int64_t line,
                        Sha256* sha);
  // Records a label that Class() has read.
  // Errors: FAILED_PRECONDITION.
  absl::Status TakeLabel(int32_t label, int64_t line);
  absl::Status Finish(const std::string& first_path, const Sha256& sha);

  // The class that `text` specifies, from 0, or -1.
  absl::StatusOr<int32_t> Class(absl::string_view text) const;
  absl::StatusOr<float> Target(absl::string_view text) const;

  const bool unlabeled_;
  const bool targets_;
  const bool skip_bad_rows_;
  ExampleSpec spec_;
  std::vector<File> files_;
  // The offset of each example's line in its file.
  std::vector<int64_t> offsets_;

  int32_t greatest_label_ = -1;
  std::string greatest_label_place_;
  // The first label of each of these kinds, if any.
  Place minus_one_;
  Place other_than_sign_;
  SkippedRows skipped_;
  std::string digest_;
  Footprint footprint_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_LIBSVM_DATASET_H_
