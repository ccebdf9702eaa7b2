#ifndef HOLDFAST_CLI_INSPECT_TFRECORD_H_
#define HOLDFAST_CLI_INSPECT_TFRECORD_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace holdfast {

// Says to stdout what features the records of `files` (patterns) have, in one
// pass over them, and a schema to start from. `answer`: the feature that is to
// be learned, a target where `is_target`, or else a label; empty: the one that
// is called so, if one is. Errors: those of FindFiles and TfRecordReader;
// INVALID_ARGUMENT for a record that is no Example, files without records, and
// an answer that is not there.
absl::Status InspectTfRecord(const std::vector<std::string>& files,
                             absl::string_view answer, bool is_target);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_INSPECT_TFRECORD_H_
