#ifndef HOLDFAST_CLI_DATA_SPLIT_H_
#define HOLDFAST_CLI_DATA_SPLIT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace holdfast {

struct SplitOptions {
  // Of the examples, for the test files. Above 0 and below 1.
  double fraction = 0;
  uint64_t seed = 0;
  // Where the files go. Empty: each beside the file that it is a part of.
  std::string out;
  // Files that are there already are replaced.
  bool force = false;
};

// A file or folder that was written, and the examples in it.
struct SplitPart {
  std::string path;
  int64_t examples = 0;
};

// Cuts data sets in two, those to train on and those to test on, in the order
// that they have; which examples are whose is as with a job's data.holdout of
// this fraction and seed (HeldOutExamples). The parts of NAME.EXT are
// NAME-train.EXT and NAME-test.EXT. When it fails, nothing has been written.
// Errors: INVALID_ARGUMENT for a wrong fraction, or files that do not belong
// together; ALREADY_EXISTS for one that would be replaced; those of the files.

// CSV files, whose rows are one data set; the parts of each have its header.
// Files that are packed are unpacked, and cells quoted where they have to be.
absl::StatusOr<std::vector<SplitPart>> SplitCsv(
    const std::vector<std::string>& files, char delimiter, bool header,
    const SplitOptions& options);

// Arrays (ReadNpy; where `is_npy` is false, ReadIdx), of which row i belongs to
// example i in each. The parts are .npy; those of FILE.npz:NAME are called
// FILE-NAME.
absl::StatusOr<std::vector<SplitPart>> SplitArrays(
    const std::vector<std::string>& files, bool is_npy,
    const SplitOptions& options);

// TFRecord files, whose records are one data set. Records are copied as they
// are, whatever is in them; files that are packed are unpacked.
absl::StatusOr<std::vector<SplitPart>> SplitTfRecord(
    const std::vector<std::string>& files, const SplitOptions& options);

// A folder of images, with a folder for each class; in the order in which a job
// takes them that names no `classes`. The parts are such folders, with copies
// of the files; both have a folder of each class, also of one that has no image
// there.
absl::StatusOr<std::vector<SplitPart>> SplitImages(const std::string& folder,
                                                   const SplitOptions& options);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_DATA_SPLIT_H_
