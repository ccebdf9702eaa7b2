// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_ZIPF_H_
#define HOLDFAST_CLI_ZIPF_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>

namespace holdfast {

// Zipf's law on the ranks from 1 to n: the probability of rank k is
// proportional to k^-exponent. With exponent 0 all are equally likely.
//
// Draws ranks by rejection-inversion (W. Hormann and G. Derflinger,
// "Rejection-inversion to generate variates from monotone discrete
// distributions", 1996), which needs no table of n weights. Results are the
// same on every machine (common/base/portable_math.h).
//
// Immutable, thus thread-safe.
class ZipfLaw {
 public:
  // `n` is at least 1, `exponent` 0 or more.
  ZipfLaw(uint64_t n, double exponent);

  // A random rank. Each call of `uniform` must return a new random number in
  // [0, 1).
  template <typename Uniform>
  uint64_t Draw(Uniform&& uniform) const {
    for (;;) {
      const double area = first_area_ + uniform() * (last_area_ - first_area_);
      const double x = InverseIntegral(area);
      const double rank = std::clamp(std::floor(x + 0.5), 1.0, n_);
      if (rank - x <= accepted_ ||
          area >= Integral(rank + 0.5) - Weight(rank)) {
        return static_cast<uint64_t>(rank);
      }
    }
  }

  // The largest number of ranks, up to `limit`, for which the least likely rank
  // has at least this probability; at least 1.
  static uint64_t MostRanks(uint64_t limit, double exponent,
                            double probability);

 private:
  // x^-exponent, its integral, and the inverse of the integral.
  double Weight(double x) const;
  double Integral(double x) const;
  double InverseIntegral(double area) const;

  const double n_;
  const double exponent_;
  // Limits between which areas under Weight are drawn.
  const double first_area_;
  const double last_area_;
  // A rank that exceeds the real number that was drawn by at most this is
  // accepted without evaluating the integral.
  const double accepted_;
};

// Random ranks that follow the law; the same seed gives the same ranks.
//
// Thread-compatible.
class ZipfRanks {
 public:
  ZipfRanks(uint64_t n, double exponent, uint64_t seed)
      : law_(n, exponent), random_(seed) {}

  uint64_t Next() {
    // The 53 bits that a double has.
    return law_.Draw([this] { return (random_() >> 11) * 0x1p-53; });
  }

 private:
  const ZipfLaw law_;
  std::mt19937_64 random_;
};

}  // namespace holdfast

#endif  // HOLDFAST_CLI_ZIPF_H_
