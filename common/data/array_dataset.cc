// SPDX-License-Identifier: Apache-2.0
#include "common/data/array_dataset.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/data/data_digest.h"
#include "common/tensor/norm.h"
#include "common/tensor/shape.h"

namespace holdfast {
namespace {

// Checks that `array` has one number per example.
// Errors: INVALID_ARGUMENT.
absl::Status CheckOneEach(const TypedArray& array, absl::string_view what) {
  if (array.row_size() == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " are one number for each example, but ", array.place,
                   " has the shape ", ShapeString(array.shape)));
}

absl::Status CheckRows(const TypedArray& inputs, const TypedArray& array,
                       absl::string_view what) {
  if (array.rows() == inputs.rows()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("inputs and ", what, " do not match: ", inputs.place,
                   " holds ", inputs.rows(), " examples, ", array.place, " ",
                   what, " of ", array.rows()));
}

// Errors: INVALID_ARGUMENT for a number that is not finite, or below `least`.
absl::Status CheckNumbers(const TypedArray& array, float least,
                          absl::string_view what) {
  std::vector<float> row(array.row_size());
  for (int64_t i = 0; i < array.rows(); ++i) {
    array.ReadFloats(i * row.size(), {}, absl::MakeSpan(row));
    for (const float value : row) {
      if (std::isfinite(value) && value >= least) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          what, " of example ", i, " (from 0) in ", array.place, " is ", value,
          "; it must be finite", least == 0 ? ", and not below 0" : ""));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> ArrayDataset::Create(
    ExampleArrays arrays, const Options& options) {
  std::unique_ptr<ArrayDataset> dataset(new ArrayDataset);
  const TypedArray& inputs = arrays.inputs;
  ExampleSpec& spec = dataset->spec_;
  spec.shape.assign(inputs.shape.begin() + 1, inputs.shape.end());
  // [n] stands for n examples with one number each.
  if (spec.shape.empty()) spec.shape = {1};
  dataset->input_size_ = inputs.row_size();
  dataset->scaling_ = options.ScalingOf(inputs.type);

  absl::Status status;
  if (arrays.labels.has_value()) {
    status = CheckRows(inputs, *arrays.labels, "labels");
    status.Update(CheckOneEach(*arrays.labels, "labels"));
  }
  if (arrays.targets.has_value()) {
    status.Update(CheckRows(inputs, *arrays.targets, "targets"));
    if (status.ok()) {
      status = CheckNumbers(*arrays.targets,
                            std::numeric_limits<float>::lowest(), "the target");
    }
    spec.num_targets = arrays.targets->row_size();
  }
  if (arrays.weights.has_value()) {
    status.Update(CheckRows(inputs, *arrays.weights, "weights"));
    status.Update(CheckOneEach(*arrays.weights, "weights"));
    if (status.ok()) status = CheckNumbers(*arrays.weights, 0, "the weight");
    spec.weighted = true;
  }
  if (!status.ok()) return status;
  dataset->arrays_ = std::move(arrays);
  if (dataset->arrays_.labels.has_value()) {
    status = dataset->CheckLabels();
    if (!status.ok()) return status;
  }
  dataset->Digest(options.reading.progress);
  return dataset;
}

absl::Status ArrayDataset::CheckLabels() {
  const TypedArray& labels = *arrays_.labels;
  if (!IsInteger(labels.type)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "labels are classes, whole numbers from 0, but ", labels.place,
        " holds ", TypeName(labels.type),
        ": save them as integers, or name the array as `targets`"));
  }
  for (int64_t i = 0; i < labels.rows(); ++i) {
    const int64_t label = labels.IntegerAt(i);
    if (label < 0 || label >= std::numeric_limits<int32_t>::max()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "label ", label, " of example ", i, " (from 0) in ", labels.place,
          ": classes are whole numbers from 0 to 2147483646"));
    }
    if (label <= greatest_label_) continue;
    greatest_label_ = label;
    greatest_label_row_ = i;
  }
  spec_.num_classes = greatest_label_ + 1;
  return absl::OkStatus();
}

void ArrayDataset::Digest(ReadingProgress* progress) {
  // The parts, in the order of the digest, with the text digested before each.
  std::vector<std::pair<absl::string_view, const TypedArray*>> parts = {
      {"", &arrays_.inputs}};
  if (arrays_.labels.has_value()) parts.emplace_back("", &*arrays_.labels);
  if (arrays_.targets.has_value()) {
    parts.emplace_back("targets", &*arrays_.targets);
  }
  if (arrays_.weights.has_value()) {
    parts.emplace_back("weights", &*arrays_.weights);
  }
  for (const auto& [name, array] : parts) {
    (array->mapped ? footprint_.mapped : footprint_.memory) +=
        array->bytes.size();
  }
  const int64_t total = footprint_.mapped + footprint_.memory;
  if (progress != nullptr) progress->Begin(arrays_.inputs.place, total);
  DataDigest::Options options;
  options.progress = progress;
  DataDigest digest(total, options);
  for (const auto& [name, array] : parts) {
    digest.AddHeader(name);
    digest.AddHeader(array->header);
    digest.AddPart(array->bytes);
  }
  digest_ = digest.Hex();
  digest_is_sampled_ = digest.sampled();
}

absl::Status ArrayDataset::Read(int64_t index, const ExampleMemory& to) const {
  const TypedArray& inputs = arrays_.inputs;
  inputs.ReadFloats(index * input_size_, scaling_, to.input);
  if (!IsInteger(inputs.type) && !AllFinite(to.input)) {
    for (int64_t i = 0; i < input_size_; ++i) {
      if (std::isfinite(to.input[i])) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "value ", i, " of example ", index, " (both from 0) in ",
          inputs.place, " is ", to.input[i],
          ": a model takes finite numbers; fill in missing values, or leave "
          "the example out"));
    }
  }
  if (arrays_.targets.has_value()) {
    arrays_.targets->ReadFloats(index * spec_.num_targets, {}, to.targets);
  } else {
    *to.label = arrays_.labels.has_value()
                    ? static_cast<int32_t>(arrays_.labels->IntegerAt(index))
                    : 0;
  }
  if (arrays_.weights.has_value()) {
    *to.weight = arrays_.weights->FloatAt(index);
  }
  return absl::OkStatus();
}

std::string ArrayDataset::GreatestLabelPlace() const {
  if (!arrays_.labels.has_value()) return "";
  return absl::StrCat("label ", greatest_label_, " of example ",
                      greatest_label_row_, " (from 0) in ",
                      arrays_.labels->place);
}

}  // namespace holdfast
