// SPDX-License-Identifier: Apache-2.0
#include "examples/custom_data/rings_dataset.h"

#include <array>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/base/sha256.h"

namespace holdfast_examples {
namespace {

constexpr double kTwoPi = 6.283185307179586;
constexpr int64_t kMaxRings = 1000;

// Uniform on [0, 1).
double Unit(uint32_t bits) { return bits * 0x1p-32; }

}  // namespace

absl::StatusOr<std::unique_ptr<holdfast::Dataset>> RingsDataset::Create(
    const holdfast::DatasetContext& context) {
  Options options;
  for (const auto& [name, value] : context.options) {
    bool good = false;
    if (name == "examples") {
      good = absl::SimpleAtoi(value, &options.examples);
    } else if (name == "rings") {
      good = absl::SimpleAtoi(value, &options.rings) && options.rings >= 2 &&
             options.rings <= kMaxRings;
    } else if (name == "noise") {
      good = absl::SimpleAtod(value, &options.noise) && options.noise >= 0 &&
             options.noise < 1;
    } else if (name == "seed") {
      good = absl::SimpleAtoi(value, &options.seed);
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("there is no option \"", name,
                       "\"; there are examples, rings, noise and seed"));
    }
    if (good) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("option ", name, " is \"", value,
                     "\", but examples and seed are whole numbers, rings is "
                     "from 2 to ",
                     kMaxRings, ", and noise from 0 to below 1"));
  }
  if (options.examples < 1) {
    return absl::InvalidArgumentError(
        "option examples is required: the number of examples");
  }
  return std::unique_ptr<holdfast::Dataset>(new RingsDataset(options));
}

RingsDataset::RingsDataset(const Options& options)
    : options_(options),
      spec_{/*shape=*/{2}, /*num_classes=*/options.rings},
      digest_(holdfast::Sha256::Hex(
          absl::StrCat("rings ", options.examples, " ", options.rings, " ",
                       options.noise, " ", options.seed))) {}

absl::Status RingsDataset::Read(int64_t index,
                                const holdfast::ExampleMemory& to) const {
  const std::array<uint32_t, 4> bits = holdfast::Philox4x32(
      {static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), 0, 0},
      {static_cast<uint32_t>(options_.seed),
       static_cast<uint32_t>(options_.seed >> 32)});
  const int64_t ring = bits[0] % options_.rings;
  const double angle = kTwoPi * Unit(bits[1]);
  const double distance = 1.0 + ring + options_.noise * (2 * Unit(bits[2]) - 1);
  to.input[0] = static_cast<float>(distance * std::cos(angle));
  to.input[1] = static_cast<float>(distance * std::sin(angle));
  *to.label = static_cast<int32_t>(ring);
  return absl::OkStatus();
}

}  // namespace holdfast_examples
