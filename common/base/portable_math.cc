// SPDX-License-Identifier: Apache-2.0
#include "common/base/portable_math.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>

namespace holdfast {
namespace {

// ln 2 in two parts, whose sum has 33 bits more than a double; products of the
// first part and an integer below 2^20 are exact (from fdlibm's e_exp.c).
constexpr double kLn2High = 6.93147180369123816490e-01;
constexpr double kLn2Low = 1.90821492927058770002e-10;
constexpr double kLog2E = 1.44269504088896338700e+00;

// e^r - 1 by its Taylor series; |r| is at most 0.35, so the first omitted term
// is below 2^-56 of the sum.
double ExpSeries(double r) {
  double sum = 0;
  for (int k = 14; k >= 1; --k) sum = (sum + 1) * (r * (1.0 / k));
  return sum;
}

// 2 atanh(s), which is log((1 + s) / (1 - s)), by its Taylor series; |s| is at
// most 0.2, so the first omitted term is below 2^-55 of the sum.
double LogSeries(double s) {
  const double square = s * s;
  double sum = 0;
  for (int k = 23; k >= 3; k -= 2) sum = (sum + 1.0 / k) * square;
  return 2 * s + 2 * s * sum;
}

}  // namespace

double PortableExp(double x) {
  if (std::isnan(x)) return x;
  if (x > 709.78) return std::numeric_limits<double>::infinity();
  if (x < -708) return 0;
  const double n = std::floor(x * kLog2E + 0.5);
  const double r = (x - n * kLn2High) - n * kLn2Low;
  // The multiplication by 2^n is exact.
  return std::ldexp(1 + ExpSeries(r), static_cast<int>(n));
}

double PortableExpm1(double x) {
  return std::abs(x) <= 0.35 ? ExpSeries(x) : PortableExp(x) - 1;
}

double PortableLog(double x) {
  // x = m 2^e with m in [sqrt(1/2), sqrt(2)).
  uint64_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  int exponent = static_cast<int>(bits >> 52) - 1023;
  bits = (bits & 0x000fffffffffffff) | 0x3ff0000000000000;
  double m;
  std::memcpy(&m, &bits, sizeof(m));
  constexpr double kSqrt2 = 1.4142135623730951;
  if (m >= kSqrt2) {
    m *= 0.5;
    ++exponent;
  }
  // log m = 2 artanh(s) = 2 (s + s^3/3 + s^5/5 + ...) with |s| < 0.172. The
  // s^23 term is below 1e-19 of the sum.
  const double s = (m - 1) / (m + 1);
  static constexpr double kSeries[] = {2.0 / 23, 2.0 / 21, 2.0 / 19, 2.0 / 17,
                                       2.0 / 15, 2.0 / 13, 2.0 / 11, 2.0 / 9,
                                       2.0 / 7,  2.0 / 5,  2.0 / 3};
  const double z = s * s;
  double sum = kSeries[0];
  for (size_t i = 1; i < std::size(kSeries); ++i) sum = sum * z + kSeries[i];
  const double tail = s * (z * sum);
  // log 2 in two parts; the first has so few digits that its product with an
  // exponent is exact.
  constexpr double kLn2High = 0x1.62e42fee00000p-1;
  constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
  return exponent * kLn2High + (2 * s + (tail + exponent * kLn2Low));
}

double PortableLog1p(double x) {
  // For small x, 1 + x would lose the last bits of x.
  return std::abs(x) <= 0.4 ? LogSeries(x / (2 + x)) : PortableLog(1 + x);
}

}  // namespace holdfast
