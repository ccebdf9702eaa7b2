// SPDX-License-Identifier: Apache-2.0
#include "cli/criteo_generator.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/portable_math.h"
#include "common/base/random.h"

namespace holdfast {
namespace {

// Purposes of random bits, which keep uses of the same counter distinct. Bits
// of examples have the example's Part as purpose.
constexpr uint32_t kWeights = 16;
constexpr uint32_t kVectors = 17;
constexpr uint32_t kSlopes = 18;
constexpr uint32_t kKeys = 19;
// The part of examples from which the bias is determined.
constexpr uint32_t kPilot = 3;
constexpr int kPilotExamples = 1 << 14;

// Standard deviations of the logit's terms. In total, the weights of all
// categories have about 1.1, all numbers 0.4, all pairs 1.
constexpr double kWeightDeviation = 0.22;
constexpr double kSlopeDeviation = 0.12;
constexpr double kVectorDeviation = 0.36;

// A number x is floor(e^(mean + deviation z)) - less, with z approximately
// normal.
struct NumberShape {
  double missing;
  double mean;
  double deviation;
  int less;
};
constexpr NumberShape kNumbers[kCriteoNumbers] = {
    {0.45, 0.7, 1.1, 0}, {0.00, 1.9, 1.7, 3}, {0.21, 1.9, 1.3, 0},
    {0.22, 1.5, 1.0, 0}, {0.03, 7.9, 1.9, 0}, {0.22, 3.5, 1.5, 0},
    {0.04, 1.3, 1.5, 0}, {0.00, 2.0, 1.1, 0}, {0.04, 3.7, 1.4, 0},
    {0.45, 0.2, 0.6, 0}, {0.04, 0.6, 1.0, 0}, {0.76, 0.2, 1.0, 0},
    {0.22, 1.5, 1.0, 0}};

constexpr double kMissing[kCriteoCategories] = {
    0, 0, 0.03, 0.03, 0, 0.12, 0,    0,    0,    0, 0,    0.03, 0,
    0, 0, 0.03, 0,    0, 0.44, 0.44, 0.03, 0.76, 0, 0.03, 0.44, 0.44};

// A bijection (the finalizer of MurmurHash3), so that no two ids coincide.
uint32_t Mixed(uint32_t x) {
  x ^= x >> 16;
  x *= 0x85ebca6b;
  x ^= x >> 13;
  x *= 0xc2b2ae35;
  return x ^ x >> 16;
}

std::array<uint32_t, 2> KeyOf(uint64_t seed) {
  return {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
}

// The sum of four uniform numbers of 8 bits, scaled: mean 0, deviation 1.
double Normal(uint32_t bits) {
  const int sum =
      (bits & 0xff) + (bits >> 8 & 0xff) + (bits >> 16 & 0xff) + (bits >> 24);
  // The variance of a uniform number from 0 to 255 is (256^2 - 1) / 12.
  constexpr double kDeviation = 147.80053;
  return (sum - 510) / kDeviation;
}

void AppendHex(uint32_t id, std::string* lines) {
  char digits[9] = "\t";
  for (int i = 8; i > 0; --i, id >>= 4) digits[i] = "0123456789abcdef"[id & 15];
  lines->append(digits, sizeof(digits));
}

}  // namespace

// The sequence of random numbers of one example.
class CriteoGenerator::Random {
 public:
  Random(uint64_t seed, uint32_t part, int64_t index)
      : key_(KeyOf(seed)),
        counter_({static_cast<uint32_t>(index),
                  static_cast<uint32_t>(static_cast<uint64_t>(index) >> 32), 0,
                  part}) {}

  uint32_t Bits() {
    if (used_ == bits_.size()) {
      bits_ = Philox4x32(counter_, key_);
      ++counter_[2];
      used_ = 0;
    }
    return bits_[used_++];
  }
  // A uniform number in [0, 1).
  double Uniform() {
    const uint64_t high = Bits();
    return (high << 21 ^ Bits() >> 11) * 0x1p-53;
  }
  bool Is(double probability) { return Bits() * 0x1p-32 < probability; }

 private:
  const std::array<uint32_t, 2> key_;
  std::array<uint32_t, 4> counter_;
  std::array<uint32_t, 4> bits_ = {};
  size_t used_ = 4;
};

const std::array<uint32_t, kCriteoCategories>
    CriteoGenerator::kKaggleCardinalities = {
        1460,  583,  10131227, 2202608, 305, 24,     12517,   633,   3,
        93145, 5683, 8351593,  3194,    27,  14992,  5461306, 10,    5652,
        2173,  4,    7046547,  18,      15,  286181, 105,     142572};

double CriteoGenerator::FewestExpected(int64_t min_occurrences) {
  const double root =
      (7 + std::sqrt(49 + 4 * static_cast<double>(min_occurrences))) / 2;
  return root * root;
}

CriteoGenerator::CriteoGenerator(const Options& options)
    : seed_(options.seed), cardinalities_(options.cardinalities) {
  for (uint32_t field = 0; field < cardinalities_.size(); ++field) {
    double missing = kMissing[field];
    if (options.min_occurrences > 0) {
      const double examples = static_cast<double>(options.examples);
      const double fewest = FewestExpected(options.min_occurrences);
      if (missing * examples < fewest) missing = 0;
      cardinalities_[field] = static_cast<uint32_t>(
          ZipfLaw::MostRanks(cardinalities_[field], options.zipf,
                             fewest / ((1 - missing) * examples)));
    }
    const uint32_t key =
        Philox4x32({field, 0, 0, kKeys}, KeyOf(options.seed))[0];
    categories_.emplace_back(ZipfLaw(cardinalities_[field], options.zipf),
                             missing, key);
  }
  for (uint32_t number = 0; number < slopes_.size(); ++number) {
    slopes_[number] = kSlopeDeviation * Normals(kSlopes, number, 0)[0];
  }
  SetBias();
}

std::array<double, 4> CriteoGenerator::Normals(uint32_t purpose, uint32_t field,
                                               uint32_t id) const {
  const std::array<uint32_t, 4> bits =
      Philox4x32({id, field, 0, purpose}, KeyOf(seed_));
  return {Normal(bits[0]), Normal(bits[1]), Normal(bits[2]), Normal(bits[3])};
}

double CriteoGenerator::NumberTerm(int number, double value) const {
  const NumberShape& shape = kNumbers[number];
  const double log = PortableLog1p(std::max(value, 0.0));
  return slopes_[number] * (log - shape.mean) / shape.deviation;
}

double CriteoGenerator::PairsTerm(
    const std::array<uint32_t, kCriteoCategories>& ids) const {
  // The sum over pairs is half of: the square of the sum minus the sum of the
  // squares.
  std::array<double, kPairLength> sum = {};
  double squares = 0;
  for (const int field : kPairFields) {
    const std::array<double, kPairLength> vector =
        Normals(kVectors, field, ids[field]);
    for (int i = 0; i < kPairLength; ++i) {
      sum[i] += vector[i];
      squares += vector[i] * vector[i];
    }
  }
  double square = 0;
  for (const double each : sum) square += each * each;
  return kVectorDeviation * kVectorDeviation * (square - squares) / 2;
}

CriteoGenerator::Example CriteoGenerator::Make(Part part, int64_t index,
                                               std::string* lines) const {
  Random random(seed_, static_cast<uint32_t>(part), index);
  Example example;
  example.logit = bias_;
  const double chance = random.Uniform();
  std::array<int64_t, kCriteoNumbers> numbers;
  std::array<bool, kCriteoNumbers> is_missing;
  for (int i = 0; i < kCriteoNumbers; ++i) {
    const NumberShape& shape = kNumbers[i];
    is_missing[i] = random.Is(shape.missing);
    const double z = Normal(random.Bits());
    const double value = PortableExp(shape.mean + shape.deviation * z);
    numbers[i] = is_missing[i] ? 0 : static_cast<int64_t>(value) - shape.less;
    example.logit += NumberTerm(i, static_cast<double>(numbers[i]));
  }
  for (int field = 0; field < kCriteoCategories; ++field) {
    const Category& category = categories_[field];
    const bool missing = random.Is(category.missing);
    const uint64_t id =
        missing ? 0 : category.law.Draw([&random] { return random.Uniform(); });
    example.ids[field] = static_cast<uint32_t>(id);
    example.logit +=
        kWeightDeviation * Normals(kWeights, field, example.ids[field])[0];
  }
  example.pairs = PairsTerm(example.ids);
  example.logit += example.pairs;
  example.clicked = chance < Probability(example.logit);
  if (lines == nullptr) return example;
  lines->push_back(example.clicked ? '1' : '0');
  for (int i = 0; i < kCriteoNumbers; ++i) {
    lines->push_back('\t');
    if (!is_missing[i]) absl::StrAppend(lines, numbers[i]);
  }
  for (int field = 0; field < kCriteoCategories; ++field) {
    const uint32_t id = example.ids[field];
    if (id == 0) {
      lines->push_back('\t');
    } else {
      AppendHex(Mixed(id ^ categories_[field].key), lines);
    }
  }
  lines->push_back('\n');
  return example;
}

double CriteoGenerator::Probability(double logit) {
  return 1 / (1 + PortableExp(-logit));
}

double CriteoGenerator::LogProbability(double logit) {
  // If e^-logit is large, log(1 + e^-logit) is computed as -logit + log(1 +
  // e^logit).
  return logit >= 0 ? -PortableLog1p(PortableExp(-logit))
                    : logit - PortableLog1p(PortableExp(logit));
}

void CriteoGenerator::SetBias() {
  std::vector<double> logits;
  for (int64_t i = 0; i < kPilotExamples; ++i) {
    logits.push_back(Make(static_cast<Part>(kPilot), i, nullptr).logit);
  }
  double low = -20, high = 20;
  for (int i = 0; i < 40; ++i) {
    bias_ = (low + high) / 2;
    double clicks = 0;
    for (const double logit : logits) clicks += Probability(bias_ + logit);
    (clicks > kClickRate * kPilotExamples ? high : low) = bias_;
  }
}

double AreaUnderCurveOf(std::vector<std::pair<float, bool>> logits) {
  // Among equal logits, class 0 comes first.
  std::sort(logits.begin(), logits.end());
  double clicks = 0, others = 0, halves = 0;
  for (size_t begin = 0; begin < logits.size();) {
    size_t end = begin;
    double equal_clicks = 0, equal_others = 0;
    for (; end < logits.size() && logits[end].first == logits[begin].first;
         ++end) {
      ++(logits[end].second ? equal_clicks : equal_others);
    }
    halves += equal_clicks * (2 * others + equal_others);
    clicks += equal_clicks;
    others += equal_others;
    begin = end;
  }
  if (clicks == 0 || others == 0) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  return halves / 2 / (clicks * others);
}

}  // namespace holdfast
