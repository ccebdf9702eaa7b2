// SPDX-License-Identifier: Apache-2.0
#include "common/tensor/initializer.h"

#include <algorithm>
#include <array>
#include <cmath>  // Only sqrt and nextafter, which IEEE 754 defines exactly.
#include <cstring>
#include <limits>
#include <string>

#include "absl/numeric/int128.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/portable_math.h"
#include "common/base/random.h"
#include "common/base/sha256.h"
#include "common/tensor/shape.h"

namespace holdfast {
namespace {

// The standard deviation of a standard normal truncated at -2 and 2.
constexpr double kTruncatedStddev = 0.87962566103423978;
// The normal distribution function at -2, and the probability between -2 and 2.
constexpr double kCdfAtMinus2 = 0.022750131948179209;
constexpr double kWithin2 = 0.95449973610364158;

// The name fills half of the counter through its digest, so that no two
// variables share random numbers with each other or with another use of the
// job's seed.
std::array<uint32_t, 2> WordsOf(absl::string_view name) {
  const std::string digest =
      Sha256::Hex(absl::StrCat("holdfast initializer ", name));
  std::array<uint32_t, 2> words = {0, 0};
  absl::SimpleHexAtoi(digest.substr(0, 8), &words[0]);
  absl::SimpleHexAtoi(digest.substr(8, 8), &words[1]);
  return words;
}

std::array<uint32_t, 2> KeyOf(uint64_t seed) {
  return {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
}

// 32 random bits for each element of a variable.
class ElementBits {
 public:
  ElementBits(std::array<uint32_t, 2> name, std::array<uint32_t, 2> key)
      : key_(key), name_(name) {}

  // Calls visit(i, bits) for each i below `count`, with the bits of element
  // begin + i.
  template <typename Visitor>
  void Visit(absl::uint128 begin, size_t count, Visitor visit) const {
    size_t i = 0;
    while (i < count) {
      const absl::uint128 element = begin + i;
      const absl::uint128 block = element >> kLaneBits;
      const uint64_t low = absl::Uint128Low64(block);
      // Only rows of tables have block numbers of 2^64 and more. For them, some
      // of the last bits of the name's words are changed.
      const auto high = static_cast<uint32_t>(absl::Uint128High64(block));
      const std::array<uint32_t, kLanes> bits = Philox4x32(
          {static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32),
           name_[0], name_[1] ^ high},
          key_);
      for (size_t lane = absl::Uint128Low64(element) % kLanes;
           lane < kLanes && i < count; ++lane) {
        visit(i++, bits[lane]);
      }
    }
  }

 private:
  static constexpr int kLaneBits = 2;
  static constexpr size_t kLanes = 1 << kLaneBits;
  const std::array<uint32_t, 2> key_;
  const std::array<uint32_t, 2> name_;
};

// A uniform number in [0, 1).
double HalfOpenUnit(uint32_t bits) { return bits * 0x1p-32; }
// A uniform number in (0, 1), symmetric about 1/2.
double OpenUnit(uint32_t bits) { return (bits + 0.5) * 0x1p-32; }

float ToFloat(double value) {
  constexpr double kMax = std::numeric_limits<float>::max();
  return static_cast<float>(std::clamp(value, -kMax, kMax));
}

void FillUniform(const ElementBits& bits, absl::uint128 begin, float low,
                 float high, absl::Span<float> values) {
  const double width = static_cast<double>(high) - low;
  // Values just below `high` may round up to it.
  const float greatest = std::nextafter(high, low);
  bits.Visit(begin, values.size(), [&](size_t i, uint32_t word) {
    const float value = ToFloat(low + HalfOpenUnit(word) * width);
    values[i] = std::min(value, greatest);
  });
}

void FillNormal(const ElementBits& bits, absl::uint128 begin, double mean,
                double stddev, absl::Span<float> values) {
  bits.Visit(begin, values.size(), [&](size_t i, uint32_t word) {
    values[i] = ToFloat(mean + stddev * InverseNormalCdf(OpenUnit(word)));
  });
}

void FillTruncatedNormal(const ElementBits& bits, absl::uint128 begin,
                         double mean, double stddev, absl::Span<float> values) {
  bits.Visit(begin, values.size(), [&](size_t i, uint32_t word) {
    const double p = kCdfAtMinus2 + OpenUnit(word) * kWithin2;
    const double x = std::clamp(InverseNormalCdf(p), -2.0, 2.0);
    values[i] = ToFloat(mean + stddev * x);
  });
}

struct Fans {
  double in;
  double out;
};

Fans FansOf(absl::Span<const int64_t> shape) {
  double in = 1;
  double out = 1;
  if (shape.size() == 1) {
    in = out = static_cast<double>(shape[0]);
  } else if (shape.size() >= 2) {
    double receptive_field = 1;
    for (const int64_t dimension : shape.first(shape.size() - 2)) {
      receptive_field *= static_cast<double>(dimension);
    }
    in = receptive_field * static_cast<double>(shape[shape.size() - 2]);
    out = receptive_field * static_cast<double>(shape[shape.size() - 1]);
  }
  return {std::max(in, 1.0), std::max(out, 1.0)};
}

// Errors: INVALID_ARGUMENT for an unknown distribution.
absl::Status FillByVariance(const ElementBits& bits, int64_t begin,
                            proto::Initializer::Distribution distribution,
                            double variance, absl::Span<float> values) {
  switch (distribution) {
    case proto::Initializer::UNIFORM: {
      const float limit = ToFloat(std::sqrt(3 * variance));
      FillUniform(bits, begin, -limit, limit, values);
      return absl::OkStatus();
    }
    case proto::Initializer::NORMAL:
      FillTruncatedNormal(bits, begin, 0,
                          std::sqrt(variance) / kTruncatedStddev, values);
      return absl::OkStatus();
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("unknown distribution ", static_cast<int>(distribution),
                       " of an initializer"));
  }
}

// Numerator or denominator of AS 241: the coefficients from the highest power
// down.
template <size_t n>
double Polynomial(const double (&coefficients)[n], double x) {
  double sum = coefficients[0];
  for (size_t i = 1; i < n; ++i) sum = sum * x + coefficients[i];
  return sum;
}

}  // namespace

absl::Status Initialize(const proto::Initializer& initializer,
                        absl::Span<const int64_t> shape, absl::string_view name,
                        uint64_t seed, int64_t begin,
                        absl::Span<float> values) {
  const absl::StatusOr<int64_t> elements = NumElements(shape);
  if (!elements.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("variable \"", name, "\": ", elements.status().message()));
  }
  if (begin < 0 || begin > *elements ||
      values.size() > static_cast<uint64_t>(*elements - begin)) {
    return absl::OutOfRangeError(absl::StrCat(
        "variable \"", name, "\" of shape ", ShapeString(shape),
        " has no elements ", begin, " to ", begin, " + ", values.size()));
  }

  const ElementBits bits(WordsOf(name), KeyOf(seed));
  const Fans fans = FansOf(shape);
  switch (initializer.kind_case()) {
    case proto::Initializer::kZeros:
      std::fill(values.begin(), values.end(), 0.0f);
      return absl::OkStatus();
    case proto::Initializer::kConstant:
      std::fill(values.begin(), values.end(), initializer.constant().value());
      return absl::OkStatus();
    case proto::Initializer::kUniform:
      FillUniform(bits, begin, initializer.uniform().low(),
                  initializer.uniform().high(), values);
      return absl::OkStatus();
    case proto::Initializer::kNormal:
      FillNormal(bits, begin, initializer.normal().mean(),
                 initializer.normal().stddev(), values);
      return absl::OkStatus();
    case proto::Initializer::kTruncatedNormal:
      FillTruncatedNormal(bits, begin, initializer.truncated_normal().mean(),
                          initializer.truncated_normal().stddev(), values);
      return absl::OkStatus();
    case proto::Initializer::kGlorot:
      return FillByVariance(bits, begin, initializer.glorot().distribution(),
                            2 / (fans.in + fans.out), values);
    case proto::Initializer::kHe:
      return FillByVariance(bits, begin, initializer.he().distribution(),
                            2 / fans.in, values);
    case proto::Initializer::kGiven:
      return absl::InvalidArgumentError(
          absl::StrCat("variable \"", name,
                       "\": its first values are given, not generated"));
    case proto::Initializer::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("variable \"", name, "\": its initializer has no kind"));
}

absl::StatusOr<RowInitializer> RowInitializer::Create(
    const proto::Initializer& initializer, uint32_t row_length,
    absl::string_view name, uint64_t seed) {
  switch (initializer.kind_case()) {
    case proto::Initializer::kZeros:
    case proto::Initializer::kConstant:
    case proto::Initializer::kUniform:
    case proto::Initializer::kNormal:
    case proto::Initializer::kTruncatedNormal:
      break;
    case proto::Initializer::kGlorot:
    case proto::Initializer::kHe:
      return absl::InvalidArgumentError(absl::StrCat(
          "table \"", name,
          "\": glorot and he depend on the number of rows, which a table does "
          "not declare: give uniform, normal or truncated_normal"));
    case proto::Initializer::kGiven:
      return absl::InvalidArgumentError(absl::StrCat(
          "table \"", name, "\": first values of rows cannot be given"));
    case proto::Initializer::KIND_NOT_SET:
      return absl::InvalidArgumentError(
          absl::StrCat("table \"", name, "\": its initializer has no kind"));
  }
  RowInitializer made;
  made.initializer_ = initializer;
  made.row_length_ = row_length;
  made.name_ = WordsOf(name);
  made.key_ = KeyOf(seed);
  return made;
}

void RowInitializer::Fill(uint64_t id, absl::Span<float> values) const {
  const ElementBits bits(name_, key_);
  const absl::uint128 begin = absl::uint128(id) * row_length_;
  switch (initializer_.kind_case()) {
    case proto::Initializer::kConstant:
      std::fill(values.begin(), values.end(), initializer_.constant().value());
      return;
    case proto::Initializer::kUniform:
      FillUniform(bits, begin, initializer_.uniform().low(),
                  initializer_.uniform().high(), values);
      return;
    case proto::Initializer::kNormal:
      FillNormal(bits, begin, initializer_.normal().mean(),
                 initializer_.normal().stddev(), values);
      return;
    case proto::Initializer::kTruncatedNormal:
      FillTruncatedNormal(bits, begin, initializer_.truncated_normal().mean(),
                          initializer_.truncated_normal().stddev(), values);
      return;
    default:
      std::fill(values.begin(), values.end(), 0.0f);
      return;
  }
}

double InverseNormalCdf(double p) {
  static constexpr double kA[] = {
      2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4,
      4.5921953931549871457e4, 1.3731693765509461125e4, 1.9715909503065514427e3,
      1.3314166789178437745e2, 3.3871328727963666080e0};
  static constexpr double kB[] = {
      5.2264952788528545610e3, 2.8729085735721942674e4,
      3.9307895800092710610e4, 2.1213794301586595867e4,
      5.3941960214247511077e3, 6.8718700749205790830e2,
      4.2313330701600911252e1, 1.0};
  static constexpr double kC[] = {
      7.74545014278341407640e-4, 2.27238449892691845833e-2,
      2.41780725177450611770e-1, 1.27045825245236838258e0,
      3.64784832476320460504e0,  5.76949722146069140550e0,
      4.63033784615654529590e0,  1.42343711074968357734e0};
  static constexpr double kD[] = {
      1.05075007164441684324e-9, 5.47593808499534494600e-4,
      1.51986665636164571966e-2, 1.48103976427480074590e-1,
      6.89767334985100004550e-1, 1.67638483018380384940e0,
      2.05319162663775882187e0,  1.0};
  static constexpr double kE[] = {
      2.01033439929228813265e-7, 2.71155556874348757815e-5,
      1.24266094738807843860e-3, 2.65321895265761230930e-2,
      2.96560571828504891230e-1, 1.78482653991729133580e0,
      5.46378491116411436990e0,  6.65790464350110377720e0};
  static constexpr double kF[] = {
      2.04426310338993978564e-15, 1.42151175831644588870e-7,
      1.84631831751005468180e-5,  7.86869131145613259100e-4,
      1.48753612908506148525e-2,  1.36929880922735805310e-1,
      5.99832206555887937690e-1,  1.0};
  const double q = p - 0.5;
  if (q >= -0.425 && q <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * Polynomial(kA, r) / Polynomial(kB, r);
  }
  const double tail = q < 0 ? p : 1 - p;
  const double r = std::sqrt(-PortableLog(tail));
  const double x = r <= 5 ? Polynomial(kC, r - 1.6) / Polynomial(kD, r - 1.6)
                          : Polynomial(kE, r - 5) / Polynomial(kF, r - 5);
  return q < 0 ? -x : x;
}

}  // namespace holdfast
