// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_DATA_SPLIT_H_
#define HOLDFAST_CLI_DATA_SPLIT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace holdfast {

struct SplitOptions {
  // Share of the examples for the test files. Above 0 and below 1.
  double fraction = 0;
  uint64_t seed = 0;
  // Folder for the files. If empty, each file is written next to the file of
  // which it is a part.
  std::string out;
  // Whether existing files are replaced.
  bool force = false;
};

// A file or folder that was written, and the number of examples in it.
struct SplitPart {
  std::string path;
  int64_t examples = 0;
};

// Functions that split data sets into training and test examples, which stay in
// their order. The split is the same as for a job's data.holdout with this
// fraction and seed (HeldOutExamples). The parts of NAME.EXT are NAME-train.EXT
// and NAME-test.EXT. On failure nothing has been written. Errors:
// INVALID_ARGUMENT for a wrong fraction, or files that do not belong together;
// ALREADY_EXISTS for a file that would be replaced; those of the files.

// Splits CSV files, whose rows form one data set; the parts of each file have
// its header. Compressed files are decompressed, and cells quoted if necessary.
absl::StatusOr<std::vector<SplitPart>> SplitCsv(
    const std::vector<std::string>& files, char delimiter, bool header,
    const SplitOptions& options);

// Splits arrays (read by ReadNpy, or by ReadIdx if `is_npy` is false), each of
// which has example i in row i. The parts are .npy files. The parts of
// FILE.npz:NAME are called FILE-NAME-train.npy and FILE-NAME-test.npy.
absl::StatusOr<std::vector<SplitPart>> SplitArrays(
    const std::vector<std::string>& files, bool is_npy,
    const SplitOptions& options);

// Splits TFRecord files, whose records form one data set. Records are copied
// unchanged, whatever they contain; compressed files are decompressed.
absl::StatusOr<std::vector<SplitPart>> SplitTfRecord(
    const std::vector<std::string>& files, const SplitOptions& options);

// Splits a folder of images with one subfolder per class, in the order used by
// a job that does not name `classes`. The parts are such folders with copies of
// the files; both have a subfolder for each class, even if it has no image in
// this part.
absl::StatusOr<std::vector<SplitPart>> SplitImages(const std::string& folder,
                                                   const SplitOptions& options);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_DATA_SPLIT_H_
