// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_DATA_TFRECORD_SCHEMA_H_
#define HOLDFAST_COMMON_DATA_TFRECORD_SCHEMA_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/data/dataset.h"
#include "common/data/example_source.h"
#include "common/data/image_input.h"
#include "common/data/tf_example.h"
#include "common/data/typed_array.h"
#include "proto/job.pb.h"

namespace holdfast {

// The features of a tf.train.Example as a model uses them: how records become
// examples.
//
// Immutable, thus thread-safe.
class TfRecordSchema {
 public:
  // `options` apply to raw features and images, as to arrays.
  // Errors: INVALID_ARGUMENT when the shape does not fit the inputs.
  static absl::StatusOr<TfRecordSchema> Create(const proto::TfRecord& config,
                                               const Dataset::Options& options);

  // What an example consists of. Lacks the number of classes if labels are
  // integers.
  const ExampleSpec& spec() const { return spec_; }

  // How much of an image is read.
  enum class ImageDepth {
    // Only its header is validated; nothing is written.
    kHeader,
    kPixels,
  };

  // Writes the example that `record` contains.
  // Errors: INVALID_ARGUMENT, with the feature, if a feature does not fit;
  // DATA_LOSS for a damaged image.
  absl::Status Read(absl::string_view record, ImageDepth depth,
                    const ExampleMemory& to) const;

 private:
  using FeatureKind = proto::TfRecordFeature::KindCase;
  // A feature that is used, and how.
  struct Use {
    std::string name;
    FeatureKind kind = proto::TfRecordFeature::KIND_NOT_SET;
    // The index of the feature's first input or target, and the number of its
    // inputs or targets.
    int64_t first = 0;
    int64_t size = 1;
    // For numbers.
    double mean = 0;
    double stddev = 1;
    std::optional<double> missing;
    // For raw bytes.
    ElementType type = ElementType::kUint8;
    InputScaling scaling;
    std::optional<ImageInput> image;
    // For a label: the names, unless it is an integer.
    absl::flat_hash_map<std::string, int32_t> values;
  };

  // `found` is empty if the feature is missing.
  absl::Status Take(const Use& use, const TfFeature& found, ImageDepth depth,
                    const ExampleMemory& to) const;
  // Copies the `use.size` floats unchanged.
  absl::Status Floats(const Use& use, const TfFeature& found,
                      absl::Span<float> to) const;
  absl::Status Numbers(const Use& use, const TfFeature& found,
                       absl::Span<float> to) const;
  absl::Status Raw(const Use& use, const TfFeature& found,
                   absl::Span<float> to) const;
  absl::Status Image(const Use& use, const TfFeature& found, ImageDepth depth,
                     absl::Span<float> to) const;
  absl::Status Label(const Use& use, const TfFeature& found, int32_t* to) const;

  std::vector<Use> uses_;
  // Indices in uses_, by name.
  absl::flat_hash_map<std::string, size_t> places_;
  ExampleSpec spec_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_TFRECORD_SCHEMA_H_
