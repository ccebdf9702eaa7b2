#ifndef HOLDFAST_WORKER_INPUT_DATASET_H_
#define HOLDFAST_WORKER_INPUT_DATASET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "worker/input/example_source.h"

namespace holdfast {

// What a pixel becomes in an example: (scale x byte - mean) / stddev, in
// float32, rounded one by one.
struct PixelValue {
  float scale = 1.0f / 255.0f;
  float mean = 0;
  float stddev = 1;

  float Of(uint8_t pixel) const {
    return (static_cast<float>(pixel) * scale - mean) / stddev;
  }
};

// As the job says, with its defaults filled in.
PixelValue PixelValueOf(const proto::Data& data);

// Labelled grey images of one size, in memory as the bytes that the files hold.
//
// Immutable, thus thread-safe.
class Dataset final : public ExampleSource {
 public:
  // Reads images [n, rows, columns] and labels [n] from IDX files. Errors:
  // those of ReadIdx; INVALID_ARGUMENT when the two files differ in n.
  static absl::StatusOr<std::unique_ptr<Dataset>> ReadIdxFiles(
      const std::string& images_path, const std::string& labels_path,
      const PixelValue& value = PixelValue());

  // Reads what `config` names; relative paths count from `folder`, that of the
  // job file.
  static absl::StatusOr<std::unique_ptr<Dataset>> Read(
      const proto::Dataset& config, absl::string_view folder,
      const PixelValue& value = PixelValue());

  int64_t num_examples() const override { return labels_.size(); }
  // [rows, columns].
  const std::vector<int64_t>& example_shape() const override { return shape_; }
  absl::Status Read(int64_t index, absl::Span<float> input,
                    int32_t* label) const override;

  // The greatest label, plus 1.
  int64_t num_classes() const { return num_classes_; }

  // Where the greatest label stands, for messages: the first record that has
  // it, and the file.
  std::string GreatestLabelPlace() const;

  // SHA-256, in hexadecimal, of both files' bytes one after the other, images
  // first, as they are unpacked: the same for a plain file and a gzip file.
  const std::string& digest() const { return digest_; }

 private:
  Dataset() = default;

  std::string labels_path_;
  std::vector<int64_t> shape_;
  int64_t example_size_ = 0;
  PixelValue value_;
  std::vector<uint8_t> images_;
  std::vector<uint8_t> labels_;
  int64_t num_classes_ = 0;
  std::string digest_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_INPUT_DATASET_H_
