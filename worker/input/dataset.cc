#include "worker/input/dataset.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/sha256.h"
#include "worker/input/idx.h"

namespace holdfast {
namespace {

std::string Resolve(absl::string_view folder, const std::string& path) {
  if (folder.empty() || absl::StartsWith(path, "/")) return path;
  return absl::StrCat(folder, absl::EndsWith(folder, "/") ? "" : "/", path);
}

}  // namespace

PixelValue PixelValueOf(const proto::Data& data) {
  PixelValue value;
  if (data.has_scale()) value.scale = data.scale();
  value.mean = data.normalization().mean();
  if (data.normalization().has_stddev()) {
    value.stddev = data.normalization().stddev();
  }
  return value;
}

absl::StatusOr<std::unique_ptr<Dataset>> Dataset::ReadIdxFiles(
    const std::string& images_path, const std::string& labels_path,
    const PixelValue& value) {
  absl::StatusOr<IdxArray> images = ReadIdx(images_path, 3);
  if (!images.ok()) return images.status();
  absl::StatusOr<IdxArray> labels = ReadIdx(labels_path, 1);
  if (!labels.ok()) return labels.status();
  if (images->shape[0] != labels->shape[0]) {
    return absl::InvalidArgumentError(absl::StrCat(
        "images and labels do not belong together: \"", images_path,
        "\" says at byte 4 that it holds ", images->shape[0], " images, \"",
        labels_path, "\" at byte 4 that it holds ", labels->shape[0],
        " labels"));
  }

  Sha256 sha;
  sha.Update(IdxHeader(images->shape));
  sha.Update(images->values.data(), images->values.size());
  sha.Update(IdxHeader(labels->shape));
  sha.Update(labels->values.data(), labels->values.size());

  std::unique_ptr<Dataset> dataset(new Dataset);
  dataset->labels_path_ = labels_path;
  dataset->shape_ = {images->shape[1], images->shape[2]};
  dataset->example_size_ = images->shape[1] * images->shape[2];
  dataset->value_ = value;
  dataset->images_ = std::move(images->values);
  dataset->labels_ = std::move(labels->values);
  dataset->num_classes_ =
      1 + *std::max_element(dataset->labels_.begin(), dataset->labels_.end());
  dataset->digest_ = sha.HexDigest();
  return dataset;
}

absl::StatusOr<std::unique_ptr<Dataset>> Dataset::Read(
    const proto::Dataset& config, absl::string_view folder,
    const PixelValue& value) {
  switch (config.kind_case()) {
    case proto::Dataset::kIdx:
      return ReadIdxFiles(Resolve(folder, config.idx().images()),
                          Resolve(folder, config.idx().labels()), value);
    case proto::Dataset::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("the data set names no files");
}

std::string Dataset::GreatestLabelPlace() const {
  const auto greatest = std::max_element(labels_.begin(), labels_.end());
  return absl::StrCat("label ", *greatest, " of record ",
                      greatest - labels_.begin(), " (from 0) in \"",
                      labels_path_, "\"");
}

absl::Status Dataset::Read(int64_t index, absl::Span<float> input,
                           int32_t* label) const {
  const uint8_t* pixels = images_.data() + index * example_size_;
  // Copies of the members: a store to `input` might change those, for all that
  // the compiler knows, and the loop would stay scalar.
  const PixelValue value = value_;
  const int64_t size = example_size_;
  float* values = input.data();
  for (int64_t i = 0; i < size; ++i) values[i] = value.Of(pixels[i]);
  *label = labels_[index];
  return absl::OkStatus();
}

}  // namespace holdfast
