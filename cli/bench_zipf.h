#ifndef HOLDFAST_CLI_BENCH_ZIPF_H_
#define HOLDFAST_CLI_BENCH_ZIPF_H_

#include <cstdint>
#include <random>

namespace holdfast {

// Random ranks from 1 to n that follow Zipf's law: the probability of rank k is
// proportional to k^-exponent. With exponent 0 all are equally likely.
//
// Rejection-inversion (W. Hormann and G. Derflinger, "Rejection-inversion to
// generate variates from monotone discrete distributions", 1996), which needs
// no table of n weights. The same seed gives the same ranks, except where the
// rounding of the math library differs.
//
// Thread-compatible.
class ZipfRanks {
 public:
  // `n` is at least 1, `exponent` 0 or more.
  ZipfRanks(uint64_t n, double exponent, uint64_t seed);

  uint64_t Next();

 private:
  // x^-exponent, its integral, and the inverse of the integral.
  double Weight(double x) const;
  double Integral(double x) const;
  double InverseIntegral(double area) const;

  const uint64_t n_;
  const double exponent_;
  // Limits between which areas under Weight are drawn.
  const double first_area_;
  const double last_area_;
  // A rank that exceeds the real number drawn by at most this is accepted
  // without evaluating the integral.
  const double accepted_;
  std::mt19937_64 random_;
};

}  // namespace holdfast

#endif  // HOLDFAST_CLI_BENCH_ZIPF_H_
