#ifndef HOLDFAST_CLI_CRITEO_GENERATOR_H_
#define HOLDFAST_CLI_CRITEO_GENERATOR_H_

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cli/zipf.h"
#include "common/data/criteo.h"

namespace holdfast {

// Examples in the layout of the Criteo data sets, whose labels are drawn by a
// model that is known:
//
//   logit = bias + sum over the numbers of a_j (log(1 + max(x_j, 0)) - m_j) /
//   s_j
//         + sum over the categories of w(f, id)
//         + sum over the pairs of kPairFields of <v(f, id), v(g, id')>,
//
// and the label is 1 with the probability 1 / (1 + e^-logit). Weights w and
// vectors v of kPairLength are random, fixed by the seed and the id; the bias
// is such that kClickRate of the labels are 1. A category's ids follow Zipf's
// law; numbers are about log-normal; some cells are missing, about as often as
// in the Kaggle set, an id as any other.
//
// Everything is a function of the options, part and index alone, and the same
// on every machine (common/base/portable_math.h, common/base/random.h). No
// memory is kept for an id.
//
// Immutable, thus thread-safe.
class CriteoGenerator {
 public:
  static constexpr double kClickRate = 0.25;
  static constexpr int kPairLength = 4;
  // Categories of which some ids are frequent: C1, C2, C5, C8, C14 and C17.
  static constexpr std::array<int, 6> kPairFields = {0, 1, 4, 7, 13, 16};

  // Of C1 to C26 in Kaggle's Display Advertising Challenge.
  static const std::array<uint32_t, kCriteoCategories> kKaggleCardinalities;

  struct Options {
    uint64_t seed = 0;
    // Of each category, without its missing cells; at least 1.
    std::array<uint32_t, kCriteoCategories> cardinalities =
        kKaggleCardinalities;
    // Of Zipf's law.
    double zipf = 1.05;
    // If not 0, the ids of a category, and its missing cells, are so few that
    // of `examples` each that occurs is all but sure to occur so often:
    // FewestExpected is expected of the rarest. What would be rarer, does not
    // occur.
    int64_t min_occurrences = 0;
    int64_t examples = 0;
  };
  // The number l with l - 7 sqrt(l) = `min_occurrences`, seven standard
  // deviations above it.
  static double FewestExpected(int64_t min_occurrences);

  // Different examples come of each.
  enum class Part : uint32_t { kTrain = 1, kTest = 2 };

  struct Example {
    bool clicked = false;
    // By category: 0 for a missing cell, else from 1 to the cardinality, in the
    // order of frequency.
    std::array<uint32_t, kCriteoCategories> ids = {};
    double logit = 0;
    // Of it, what the pairs add.
    double pairs = 0;
  };

  explicit CriteoGenerator(const Options& options);

  // The example at `index` of the part. Appends its line to *lines, unless that
  // is null.
  Example Make(Part part, int64_t index, std::string* lines) const;

  // Those of the options, or fewer, as min_occurrences says.
  const std::array<uint32_t, kCriteoCategories>& cardinalities() const {
    return cardinalities_;
  }

  // 1 / (1 + e^-logit), and the logarithm of it.
  static double Probability(double logit);
  static double LogProbability(double logit);

 private:
  struct Category {
    Category(const ZipfLaw& law, double missing, uint32_t key)
        : law(law), missing(missing), key(key) {}
    ZipfLaw law;
    // The share of missing cells.
    double missing;
    // By which its ids become others than those of the same rank elsewhere.
    uint32_t key;
  };
  class Random;

  // Four numbers about normal, of mean 0 and deviation 1, that belong to an id.
  std::array<double, 4> Normals(uint32_t purpose, uint32_t field,
                                uint32_t id) const;
  // Of the number, with a_j.
  double NumberTerm(int number, double value) const;
  double PairsTerm(const std::array<uint32_t, kCriteoCategories>& ids) const;
  void SetBias();

  const uint64_t seed_;
  std::array<uint32_t, kCriteoCategories> cardinalities_;
  std::vector<Category> categories_;
  std::array<double, kCriteoNumbers> slopes_;
  double bias_ = 0;
};

// The area under the receiver operating characteristic of these logits: the
// share of the pairs of an example of each class in which that of class 1 has
// the greater one, equals counted half. NaN where one class has no example.
double AreaUnderCurveOf(std::vector<std::pair<float, bool>> logits);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_CRITEO_GENERATOR_H_
