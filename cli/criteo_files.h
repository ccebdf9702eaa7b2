#ifndef HOLDFAST_CLI_CRITEO_FILES_H_
#define HOLDFAST_CLI_CRITEO_FILES_H_

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "cli/criteo_generator.h"

namespace holdfast {

struct CriteoFilesOptions {
  // The folder, which is made where there is none.
  std::string out;
  CriteoGenerator::Options generator;
  int64_t test_examples = 0;
  // Of each part.
  int64_t files = 1;
  bool gzip = false;
  // Replace files of the same kind that are there.
  bool force = false;
  // On which nothing depends but the time.
  int threads = 1;
};

// What has been written.
struct CriteoFiles {
  // Of the training part.
  double click_rate = 0;
  // By category: different ids in the training part, the missing one among
  // them, and how often that comes which comes least.
  std::array<int64_t, kCriteoCategories> ids = {};
  std::array<int64_t, kCriteoCategories> least = {};
  // Of the test part, by the model that draws the labels: of all of it, of it
  // without the pairs, and of a model that knows nothing but the click rate.
  // Areas are NaN where one class has no example.
  double auc = 0;
  double log_loss = 0;
  double auc_without_pairs = 0;
  double log_loss_of_rate = 0;
};

// Writes generator.examples to OUT/train-*.tsv, .tsv.gz with `gzip`, and
// test_examples to OUT/test-*, `files` of each, one after the other. Memory
// does not grow with the examples to train on; it is 4 bytes for each id that
// there may be and 16 for each example to test on. A gzip file has a member for
// each few thousand lines. Errors: ALREADY_EXISTS for files that are there,
// unless `force`; those of the system; INTERNAL where an id has come less often
// than min_occurrences.
absl::StatusOr<CriteoFiles> WriteCriteoFiles(const CriteoFilesOptions& options);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_CRITEO_FILES_H_
