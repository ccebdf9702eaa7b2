// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_DATA_IMAGE_DATASET_H_
#define HOLDFAST_COMMON_DATA_IMAGE_DATASET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/data/dataset.h"
#include "common/data/image_folder.h"
#include "common/data/image_input.h"
#include "common/data/skipped_rows.h"

namespace holdfast {

// Image files in folders, one per class: sorted by class, then by file name;
// or, unlabeled, in one folder. Only the names of files are kept; a file is
// decoded each time that it is read.
class ImageDataset final : public Dataset {
 public:
  // Reads all files once: their headers or, with config.skip_bad_rows, their
  // whole contents.
  // Errors: those of ListImageClasses or ListUnlabeledImages, of the system,
  // and of ImageInput, with the file; INVALID_ARGUMENT if no image is left.
  static absl::StatusOr<std::unique_ptr<Dataset>> Open(
      const proto::Images& config, const Options& options);

  int64_t num_examples() const override { return files_.size(); }
  const ExampleSpec& spec() const override { return spec_; }
  absl::Status Read(int64_t index, const ExampleMemory& to) const override;
  std::string GreatestLabelPlace() const override;
  std::string FileOf(int64_t index) const override {
    return NameOf(files_[index]);
  }
  const std::string& digest() const override { return digest_; }
  // Names are in memory; files are mapped while they are read.
  Footprint footprint() const override { return footprint_; }
  int64_t skipped_rows() const override { return skipped_.count(); }
  absl::Span<const std::string> skipped_because() const override {
    return skipped_.because();
  }

 private:
  struct File {
    std::string name;
    int32_t label;
  };

  ImageDataset(const proto::Images& config, const Options& options);

  absl::Status TestFiles(std::vector<ImageClass> classes,
                         ReadingProgress* progress);
  // The name of a file within folder_.
  std::string NameOf(const File& file) const;
  std::string PathOf(const File& file) const;

  const std::string folder_;
  const bool skip_bad_rows_;
  const bool unlabeled_;
  const ImageInput input_;
  // Indexed by label.
  std::vector<std::string> classes_;
  std::vector<File> files_;
  ExampleSpec spec_;
  SkippedRows skipped_;
  std::string digest_;
  Footprint footprint_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_IMAGE_DATASET_H_
