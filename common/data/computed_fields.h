// SPDX-License-Identifier: Apache-2.0

// Parts of a job file that are determined from its training set (docs/data.md,
// "Computed by the chief"): fields that are `computed`, and the classes of
// image folders if they are not named.
#ifndef HOLDFAST_COMMON_DATA_COMPUTED_FIELDS_H_
#define HOLDFAST_COMMON_DATA_COMPUTED_FIELDS_H_

#include "absl/status/status.h"
#include "common/data/unpack.h"
#include "proto/job.pb.h"

namespace holdfast {

// Whether a field of `data` is `computed` and has not been filled in.
bool HasComputedFields(const proto::Data& data);

// Whether HasComputedFields(data) is true, or `data` has folders of images
// whose classes are not named.
bool HasOpenFields(const proto::Data& data);

// Fills in the computed fields in one pass over the training set; the test set
// gets the same values. Rows and records that do not fit are skipped: opening
// the data set reports them.
//
// For a column of numbers, computes the mean and the population standard
// deviation, in float64 (Welford 1962), of the numbers that are not missing; a
// deviation of 0 becomes 1, so that a constant column becomes 0. For a column
// of values, lists all values that are not missing, in the order of their
// bytes. An entry of a table that stands for several columns becomes one entry
// per column.
// Errors: those of the formats; INVALID_ARGUMENT, with the column, if there is
// nothing to compute from.
absl::Status FillInComputedFields(const ReadingOptions& reading,
                                  proto::Data* data);

// Copies all open fields from `resolved`, the filled-in data of the same job
// file.
// Errors: INVALID_ARGUMENT, with the field, if `resolved` lacks one.
absl::Status CopyOpenFields(const proto::Data& resolved, proto::Data* data);

// Names the classes of a training set that is a folder of images. If the test
// set is such a folder too, it gets the same classes, so that a class without a
// folder in the test set does not shift any labels.
// Errors: those of ListImageClasses; INVALID_ARGUMENT when the test set names
// other classes, or in another order.
absl::Status FillInImageClasses(proto::Data* data);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_COMPUTED_FIELDS_H_
