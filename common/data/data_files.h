// SPDX-License-Identifier: Apache-2.0

// Functions over the files that the data set of a job file names. Pure
// functions.
#ifndef HOLDFAST_COMMON_DATA_DATA_FILES_H_
#define HOLDFAST_COMMON_DATA_DATA_FILES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/job.pb.h"

namespace holdfast {

// What the examples of a data set have besides inputs.
enum class AnswerKind { kNone, kLabels, kTargets };

// Replaces the files of `dataset` with `files`. For a table, `files` are all of
// its files, and may be patterns. For arrays, `files` are the inputs; then,
// unless `answers` is kNone, the labels or targets; and optionally the weights.
// Errors: INVALID_ARGUMENT when there are too many or too few files, or the
// data set does not consist of files.
absl::Status SetDataFiles(const std::vector<std::string>& files,
                          AnswerKind answers, proto::Dataset* dataset);

// The kind of answers that `dataset` has, according to the files that it names
// for them or to its schema.
AnswerKind AnswersOf(const proto::Dataset& dataset);

// Reduces `dataset` to inputs: removes what names labels, targets and weights.
// The labels of images are their folders, whose names are removed; labels of
// Criteo and libsvm files have a fixed position in each line, which
// Dataset::Options::unlabeled leaves unread.
void RemoveAnswers(proto::Dataset* dataset);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_DATA_FILES_H_
