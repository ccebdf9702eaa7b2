#include "common/portable_math.h"

#include <cmath>
#include <limits>

namespace holdfast {
namespace {

// ln 2 in two parts, whose sum has 33 bits more than a double; products of the
// first and a whole number below 2^20 are exact (fdlibm's e_exp.c has them).
constexpr double kLn2High = 6.93147180369123816490e-01;
constexpr double kLn2Low = 1.90821492927058770002e-10;
constexpr double kLog2E = 1.44269504088896338700e+00;
constexpr double kSqrtHalf = 0.70710678118654752440;

// e^r - 1 by its Taylor series; |r| is at most 0.35, and so the first term left
// out below 2^-56 of the sum.
double ExpSeries(double r) {
  double sum = 0;
  for (int k = 14; k >= 1; --k) sum = (sum + 1) * (r * (1.0 / k));
  return sum;
}

// 2 atanh(s), which is log((1 + s) / (1 - s)), by its Taylor series; |s| is at
// most 0.2, and so the first term left out below 2^-55 of the sum.
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
  // Exact.
  return std::ldexp(1 + ExpSeries(r), static_cast<int>(n));
}

double PortableExpm1(double x) {
  return std::abs(x) <= 0.35 ? ExpSeries(x) : PortableExp(x) - 1;
}

double PortableLog(double x) {
  int exponent = 0;
  double fraction = std::frexp(x, &exponent);
  if (fraction < kSqrtHalf) {
    fraction *= 2;
    --exponent;
  }
  const double log = LogSeries((fraction - 1) / (fraction + 1));
  return exponent * kLn2High + (exponent * kLn2Low + log);
}

double PortableLog1p(double x) {
  // Where 1 + x would lose the last bits of x.
  return std::abs(x) <= 0.4 ? LogSeries(x / (2 + x)) : PortableLog(1 + x);
}

}  // namespace holdfast
