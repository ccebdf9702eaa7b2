// SPDX-License-Identifier: Apache-2.0
#include "common/data/image_dataset.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"
#include "common/data/file_mapping.h"

namespace holdfast {
namespace {

absl::Status WithPath(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat("cannot read image \"", path,
                                                  "\": ", status.message()));
}

}  // namespace

ImageDataset::ImageDataset(const proto::Images& config, const Options& options)
    : folder_(config.folder()),
      skip_bad_rows_(config.skip_bad_rows()),
      unlabeled_(options.unlabeled),
      input_(config.picture(), options.ScalingOf(ElementType::kUint8)) {
  spec_.shape = input_.shape();
}

absl::StatusOr<std::unique_ptr<Dataset>> ImageDataset::Open(
    const proto::Images& config, const Options& options) {
  absl::StatusOr<std::vector<ImageClass>> classes =
      options.unlabeled
          ? ListUnlabeledImages(config.folder())
          : ListImageClasses(config.folder(), {config.classes().begin(),
                                               config.classes().end()});
  if (!classes.ok()) return classes.status();
  std::unique_ptr<ImageDataset> dataset(new ImageDataset(config, options));
  HOLDFAST_RETURN_IF_ERROR(
      dataset->TestFiles(*std::move(classes), options.reading.progress));
  const SkippedRows& skipped = dataset->skipped_;
  if (dataset->files_.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot read the images in \"", config.folder(), "\": there are none",
        skipped.count() > 0 ? absl::StrCat(" without errors; the first error: ",
                                           skipped.because().front())
                            : ""));
  }
  return dataset;
}

absl::Status ImageDataset::TestFiles(std::vector<ImageClass> classes,
                                     ReadingProgress* progress) {
  if (progress != nullptr) {
    progress->Begin(absl::StrCat("the images in \"", folder_, "\""),
                    /*total_bytes=*/0);
  }
  if (!unlabeled_) spec_.num_classes = classes.size();
  std::vector<float> input(skip_bad_rows_ ? spec_.input_size() : 0);
  Sha256 sha;
  sha.Update("images\n");
  for (ImageClass& each : classes) {
    const int32_t label = static_cast<int32_t>(classes_.size());
    sha.Update(absl::StrCat(each.name, "\n"));
    classes_.push_back(std::move(each.name));
    for (std::string& name : each.files) {
      File file = {std::move(name), label};
      const std::string path = PathOf(file);
      const auto mapping = FileMapping::Open(path);
      absl::Status status = mapping.status();
      if (status.ok()) {
        const absl::Span<const uint8_t> bytes = (*mapping)->bytes();
        status = skip_bad_rows_ ? input_.Read(bytes, absl::MakeSpan(input))
                                : input_.CheckHeader(bytes);
        if (!status.ok()) status = WithPath(path, status);
      }
      if (!status.ok()) {
        if (!skip_bad_rows_) return status;
        skipped_.Add(status);
        continue;
      }
      const absl::Span<const uint8_t> bytes = (*mapping)->bytes();
      const uint64_t size = bytes.size();
      sha.Update(&size, sizeof(size));
      sha.Update(bytes.data(), bytes.size());
      footprint_.memory += sizeof(File) + file.name.size();
      footprint_.mapped += bytes.size();
      if (progress != nullptr) progress->Add(bytes.size());
      files_.push_back(std::move(file));
    }
  }
  files_.shrink_to_fit();
  digest_ = sha.HexDigest();
  return absl::OkStatus();
}

std::string ImageDataset::NameOf(const File& file) const {
  const std::string& of_class = classes_[file.label];
  return of_class.empty() ? file.name : absl::StrCat(of_class, "/", file.name);
}

std::string ImageDataset::PathOf(const File& file) const {
  return absl::StrCat(folder_, "/", NameOf(file));
}

absl::Status ImageDataset::Read(int64_t index, const ExampleMemory& to) const {
  const File& file = files_[index];
  const std::string path = PathOf(file);
  HOLDFAST_ASSIGN_OR_RETURN(const auto mapping, FileMapping::Open(path));
  const absl::Status status = input_.Read(mapping->bytes(), to.input);
  if (!status.ok()) return WithPath(path, status);
  *to.label = file.label;
  return absl::OkStatus();
}

std::string ImageDataset::GreatestLabelPlace() const {
  if (unlabeled_) return "";
  return absl::StrCat("class ", classes_.size() - 1, " (from 0), the folder \"",
                      folder_, "/", classes_.back(), "\"");
}

}  // namespace holdfast
