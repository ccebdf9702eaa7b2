// SPDX-License-Identifier: Apache-2.0
#include "cli/zipf.h"

#include "common/base/portable_math.h"

namespace holdfast {

ZipfLaw::ZipfLaw(uint64_t n, double exponent)
    : n_(static_cast<double>(n)),
      exponent_(exponent),
      // The area of rank 1 has the size of its weight, which is 1.
      first_area_(Integral(1.5) - 1),
      last_area_(Integral(n_ + 0.5)),
      accepted_(2 - InverseIntegral(Integral(2.5) - Weight(2))) {}

double ZipfLaw::Weight(double x) const {
  return PortableExp(-exponent_ * PortableLog(x));
}

double ZipfLaw::Integral(double x) const {
  const double power = 1 - exponent_;
  const double log = PortableLog(x);
  return power == 0 ? log : PortableExpm1(power * log) / power;
}

double ZipfLaw::InverseIntegral(double area) const {
  const double power = 1 - exponent_;
  return PortableExp(power == 0 ? area : PortableLog1p(power * area) / power);
}

uint64_t ZipfLaw::MostRanks(uint64_t limit, double exponent,
                            double probability) {
  // The probability of the last of n ranks decreases with n.
  double sum = 1;
  for (uint64_t n = 2; n <= limit; ++n) {
    const double weight =
        PortableExp(-exponent * PortableLog(static_cast<double>(n)));
    sum += weight;
    if (weight < probability * sum) return n - 1;
  }
  return std::max<uint64_t>(limit, 1);
}

}  // namespace holdfast
