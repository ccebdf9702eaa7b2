#include "cli/bench_zipf.h"

#include <algorithm>
#include <cmath>

namespace holdfast {

ZipfRanks::ZipfRanks(uint64_t n, double exponent, uint64_t seed)
    : n_(n),
      exponent_(exponent),
      // The area of rank 1 is as wide as its weight, which is 1.
      first_area_(Integral(1.5) - 1),
      last_area_(Integral(static_cast<double>(n) + 0.5)),
      accepted_(2 - InverseIntegral(Integral(2.5) - Weight(2))),
      random_(seed) {}

uint64_t ZipfRanks::Next() {
  for (;;) {
    const double area = std::uniform_real_distribution<double>(
        first_area_, last_area_)(random_);
    const double x = InverseIntegral(area);
    const double rank =
        std::clamp(std::floor(x + 0.5), 1.0, static_cast<double>(n_));
    if (rank - x <= accepted_ || area >= Integral(rank + 0.5) - Weight(rank)) {
      return static_cast<uint64_t>(rank);
    }
  }
}

double ZipfRanks::Weight(double x) const { return std::pow(x, -exponent_); }

double ZipfRanks::Integral(double x) const {
  const double power = 1 - exponent_;
  return power == 0 ? std::log(x) : std::expm1(power * std::log(x)) / power;
}

double ZipfRanks::InverseIntegral(double area) const {
  const double power = 1 - exponent_;
  return power == 0 ? std::exp(area)
                    : std::exp(std::log1p(power * area) / power);
}

}  // namespace holdfast
