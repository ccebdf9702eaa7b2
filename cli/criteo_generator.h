// SPDX-License-Identifier: Apache-2.0
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

// Generates examples in the layout of the Criteo data sets, whose labels are
// drawn from a known model:
//
//   logit = bias
//         + sum over the numbers of a_j (log(1 + max(x_j, 0)) - m_j) / s_j
//         + sum over the categories of w(f, id)
//         + sum over the pairs of kPairFields of <v(f, id), v(g, id')>,
//
// The label is 1 with probability 1 / (1 + e^-logit). Weights w and vectors v
// of length kPairLength are random, determined by the seed and the id; the bias
// is such that a share kClickRate of the labels is 1. A category's ids follow
// Zipf's law; numbers are approximately log-normal. Some cells are missing,
// about as often as in the Kaggle data set; a missing category is an id like
// any other.
//
// Everything depends only on the options, part and index, and is the same on
// every machine (common/base/portable_math.h, common/base/random.h). No memory
// is kept per id.
//
// Immutable, thus thread-safe.
class CriteoGenerator {
 public:
  static constexpr double kClickRate = 0.25;
  static constexpr int kPairLength = 4;
  // Categories with some frequent ids: C1, C2, C5, C8, C14 and C17.
  static constexpr std::array<int, 6> kPairFields = {0, 1, 4, 7, 13, 16};

  // Cardinalities of C1 to C26 in Kaggle's Display Advertising Challenge.
  static const std::array<uint32_t, kCriteoCategories> kKaggleCardinalities;

  struct Options {
    uint64_t seed = 0;
    // Number of ids of each category, not counting its missing cells; at least
    // 1.
    std::array<uint32_t, kCriteoCategories> cardinalities =
        kKaggleCardinalities;
    // Exponent of Zipf's law.
    double zipf = 1.05;
    // If not 0, each id that occurs among `examples` examples is almost certain
    // to occur at least this often: ids of a category, or its missing cells,
    // are omitted if they are expected to occur less often than
    // FewestExpected(min_occurrences).
    int64_t min_occurrences = 0;
    int64_t examples = 0;
  };
  // Returns the expected number of occurrences l with l - 7 sqrt(l) =
  // `min_occurrences`, that is, seven standard deviations above it.
  static double FewestExpected(int64_t min_occurrences);

  // The data set of an example. The two parts have different examples.
  enum class Part : uint32_t { kTrain = 1, kTest = 2 };

  struct Example {
    bool clicked = false;
    // For each category: 0 for a missing cell, otherwise 1 to the cardinality,
    // in order of decreasing frequency.
    std::array<uint32_t, kCriteoCategories> ids = {};
    double logit = 0;
    // The contribution of the pairs to `logit`.
    double pairs = 0;
  };

  explicit CriteoGenerator(const Options& options);

  // Returns the example at `index` of the part. Appends the example's line to
  // *lines, unless `lines` is null.
  Example Make(Part part, int64_t index, std::string* lines) const;

  // The cardinalities of the options, reduced as required by min_occurrences.
  const std::array<uint32_t, kCriteoCategories>& cardinalities() const {
    return cardinalities_;
  }

  // Probability returns 1 / (1 + e^-logit), and LogProbability the logarithm of
  // that.
  static double Probability(double logit);
  static double LogProbability(double logit);

 private:
  struct Category {
    Category(const ZipfLaw& law, double missing, uint32_t key)
        : law(law), missing(missing), key(key) {}
    ZipfLaw law;
    // The share of missing cells.
    double missing;
    // Makes the ids of this category differ from the ids of the same rank in
    // other categories.
    uint32_t key;
  };
  class Random;

  // Returns four approximately normal random numbers, with mean 0 and deviation
  // 1, which depend only on the arguments and the seed.
  std::array<double, 4> Normals(uint32_t purpose, uint32_t field,
                                uint32_t id) const;
  // The term of a number in the logit, including a_j.
  double NumberTerm(int number, double value) const;
  double PairsTerm(const std::array<uint32_t, kCriteoCategories>& ids) const;
  void SetBias();

  const uint64_t seed_;
  std::array<uint32_t, kCriteoCategories> cardinalities_;
  std::vector<Category> categories_;
  std::array<double, kCriteoNumbers> slopes_;
  double bias_ = 0;
};

// The area under the ROC curve of these logits: the share of pairs of one
// example from each class in which the example of class 1 has the greater
// logit; ties count half. NaN if one class has no example.
double AreaUnderCurveOf(std::vector<std::pair<float, bool>> logits);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_CRITEO_GENERATOR_H_
