#ifndef HOLDFAST_CLI_BENCH_ZIPF_H_
#define HOLDFAST_CLI_BENCH_ZIPF_H_

#include <cstdint>
#include <random>

namespace holdfast {

// Ranks from 1 to n by Zipf's law: rank k has a probability in proportion to
// k^-exponent. With exponent 0 all are equally likely.
//
// Rejection-inversion (W. Hormann and G. Derflinger, "Rejection-inversion to
// generate variates from monotone discrete distributions", 1996): no table, and
// less than two tries for a rank on average. The same seed gives the same ranks
// on machines whose `pow` is the same.
//
// Thread-compatible.
class ZipfRanks {
 public:
  // `n` is at least 1, `exponent` 0 or more.
  ZipfRanks(uint64_t n, double exponent, uint64_t seed);

  uint64_t Next();

 private:
  // k^-exponent for any real k, its integral, and the inverse of that.
  double Weight(double x) const;
  double Integral(double x) const;
  double InverseIntegral(double area) const;

  const uint64_t n_;
  const double exponent_;
  // Areas under Weight are drawn from between these.
  const double first_area_;
  const double last_area_;
  // A rank less than this above the real number drawn is accepted at once.
  const double accepted_;
  std::mt19937_64 random_;
};

}  // namespace holdfast

#endif  // HOLDFAST_CLI_BENCH_ZIPF_H_
