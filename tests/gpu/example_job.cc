// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/example_job.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/job/job_file.h"
#include "common/tensor/initializer.h"

namespace holdfast {
namespace {

namespace fs = std::filesystem;

fs::path OwnFolder() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).parent_path();
}

// Images like Fashion-MNIST's: 28 x 28 bytes in 10 classes, each of which has a
// brighter stripe.
absl::StatusOr<std::unique_ptr<Dataset>> MadeImages(
    const Dataset::Options& options) {
  constexpr int kImages = 2000;
  constexpr int kSide = 28;
  std::string images("\0\0\x08\x03\0\0\x07\xd0\0\0\0\x1c\0\0\0\x1c", 16);
  std::string labels("\0\0\x08\x01\0\0\x07\xd0", 8);
  for (uint32_t i = 0; i < kImages; ++i) {
    const int label = i * 7 % 10;
    labels.push_back(static_cast<char>(label));
    for (uint32_t pixel = 0; pixel < kSide * kSide; ++pixel) {
      const uint32_t noise = Philox4x32({i, pixel}, {1})[0] >> 25;
      const bool bright = pixel / kSide / 2 == static_cast<uint32_t>(label) + 2;
      images.push_back(static_cast<char>(noise + (bright ? 128 : 0)));
    }
  }
  const char* const test_folder = std::getenv("TEST_TMPDIR");
  const fs::path folder = test_folder != nullptr ? fs::path(test_folder)
                                                 : fs::temp_directory_path();
  const std::string images_path = folder / "holdfast_made_images";
  const std::string labels_path = folder / "holdfast_made_labels";
  std::ofstream(images_path, std::ios::binary) << images;
  std::ofstream(labels_path, std::ios::binary) << labels;
  return Dataset::OpenIdx(images_path, labels_path, options);
}

}  // namespace

absl::StatusOr<proto::Job> LoadExample(const std::string& name) {
  const fs::path own = OwnFolder() / "examples" / name;
  if (fs::exists(own)) return LoadJobFile(own);
  // Tests and `bazel run` start in their runfiles.
  return LoadJobFile(fs::path("examples") / name);
}

absl::StatusOr<std::unique_ptr<Dataset>> ExampleImages(
    const Dataset::Options& options) {
  for (const fs::path& folder :
       {OwnFolder() / "data", fs::path("/usr/share/datasets/fashion-mnist")}) {
    const fs::path images = folder / "t10k-images-idx3-ubyte.gz";
    if (!fs::exists(images)) continue;
    return Dataset::OpenIdx(images, folder / "t10k-labels-idx1-ubyte.gz",
                            options);
  }
  return MadeImages(options);
}

absl::StatusOr<std::vector<std::vector<float>>> FirstValues(
    const std::vector<proto::Variable>& variables, uint64_t seed) {
  std::vector<std::vector<float>> values;
  for (const proto::Variable& variable : variables) {
    const std::vector<int64_t> shape(variable.shape().begin(),
                                     variable.shape().end());
    int64_t size = 1;
    for (const int64_t dimension : shape) size *= dimension;
    values.emplace_back(size);
    const absl::Status status =
        Initialize(variable.initializer(), shape, variable.name(), seed, 0,
                   absl::MakeSpan(values.back()));
    if (!status.ok()) return status;
  }
  return values;
}

}  // namespace holdfast
