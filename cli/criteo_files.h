// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_CRITEO_FILES_H_
#define HOLDFAST_CLI_CRITEO_FILES_H_

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "cli/criteo_generator.h"

namespace holdfast {

struct CriteoFilesOptions {
  // The folder, which is created if it does not exist.
  std::string out;
  CriteoGenerator::Options generator;
  int64_t test_examples = 0;
  // Number of files for the training examples, and as many for the test
  // examples.
  int64_t files = 1;
  bool gzip = false;
  // Whether to replace existing files of the same kind.
  bool force = false;
  // Number of threads. Affects only how long the writing takes.
  int threads = 1;
};

// Describes the files that were written.
struct CriteoFiles {
  // Click rate of the training part.
  double click_rate = 0;
  // For each category: `ids`, the number of distinct ids in the training part,
  // where missing cells count as one id, and `least`, the number of occurrences
  // of the rarest of these ids.
  std::array<int64_t, kCriteoCategories> ids = {};
  std::array<int64_t, kCriteoCategories> least = {};
  // Scores of the test part for the model that draws the labels: with all of
  // its terms, without the pairs, and for a model that knows only the click
  // rate. Areas are NaN if one class has no example.
  double auc = 0;
  double log_loss = 0;
  double auc_without_pairs = 0;
  double log_loss_of_rate = 0;
};

// Writes generator.examples examples to OUT/train-*.tsv (.tsv.gz with `gzip`)
// and test_examples examples to OUT/test-*, `files` files of each, one after
// the other. Memory does not grow with the number of training examples; it is 4
// bytes for each possible id and 16 for each test example. A gzip file has one
// member per few thousand lines. Errors: ALREADY_EXISTS for existing files,
// unless `force`; those of the system; INTERNAL if an id has occurred less
// often than min_occurrences.
absl::StatusOr<CriteoFiles> WriteCriteoFiles(const CriteoFilesOptions& options);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_CRITEO_FILES_H_
