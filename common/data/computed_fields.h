// What a job file leaves to its training set (docs/data.md, "Computed by the
// chief"): fields that are `computed`, and the classes of folders of images
// that are not named.
#ifndef HOLDFAST_COMMON_DATA_COMPUTED_FIELDS_H_
#define HOLDFAST_COMMON_DATA_COMPUTED_FIELDS_H_

#include "absl/status/status.h"
#include "common/data/unpack.h"
#include "proto/job.pb.h"

namespace holdfast {

// Whether a field of `data` is `computed` and has not been filled in.
bool HasComputedFields(const proto::Data& data);

// The same, or classes of images are not named.
bool HasOpenFields(const proto::Data& data);

// Fills in what is computed, in one pass over the training set; the test set
// has the training set's. Rows and records that do not fit are passed over:
// opening the data set tells of them.
//
// Numbers: mean and deviation, that of the population, in float64 (Welford
// 1962), of those that are not missing; a deviation of 0 becomes 1, so that a
// constant column becomes 0. Values: all that are not missing, by their bytes.
// A part of a table that stands for several columns becomes one for each.
// Errors: those of the formats; INVALID_ARGUMENT, with the column, where there
// is nothing to compute from.
absl::Status FillInComputedFields(const ReadingOptions& reading,
                                  proto::Data* data);

// Fills in all open fields as `resolved` has them: the data, filled in, of the
// same job file. Errors: INVALID_ARGUMENT, with the field, where it has them
// not.
absl::Status CopyOpenFields(const proto::Data& resolved, proto::Data* data);

// Names the classes of a training set that is a folder of images, and has a
// test set that is one have the same, so that a class which has no folder there
// shifts no label. Errors: those of ListImageClasses; INVALID_ARGUMENT when the
// test set names others, or in another order.
absl::Status FillInImageClasses(proto::Data* data);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_COMPUTED_FIELDS_H_
