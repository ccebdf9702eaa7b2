// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_INSPECT_TFRECORD_H_
#define HOLDFAST_CLI_INSPECT_TFRECORD_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace holdfast {

// Prints what features the records of `files` (patterns) have, found in one
// pass over them, and a schema to start from. `answer` is the feature to be
// learned, a target if `is_target`, otherwise a label; if empty, the integer
// feature whose name ends with "label", if there is one. Errors: those of
// FindFiles and TfRecordReader; INVALID_ARGUMENT for a record that is not an
// Example, for files without records, and for an answer that does not exist.
absl::Status InspectTfRecord(const std::vector<std::string>& files,
                             absl::string_view answer, bool is_target);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_INSPECT_TFRECORD_H_
