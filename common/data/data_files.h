// Which files the data set of a job file names. Pure functions.
#ifndef HOLDFAST_COMMON_DATA_DATA_FILES_H_
#define HOLDFAST_COMMON_DATA_DATA_FILES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/job.pb.h"

namespace holdfast {

// What the examples of a data set have beside inputs.
enum class AnswerKind { kNone, kLabels, kTargets };

// Has `dataset` name these files in place of its own. Tables: all of them,
// which may be patterns. Arrays: the inputs, then, unless there are no answers,
// labels or targets, and, if there is a third, weights. Errors:
// INVALID_ARGUMENT when there are too many or too few, or the data set is not
// made of files.
absl::Status SetDataFiles(const std::vector<std::string>& files,
                          AnswerKind answers, proto::Dataset* dataset);

// Which its own files have, as far as it names some, or its schema.
AnswerKind AnswersOf(const proto::Dataset& dataset);

// Has `dataset` give inputs alone: leaves out what names labels, targets and
// weights. The labels of images are their folders, which have no names then;
// those of Criteo and libsvm files have a place of their own in each line,
// which Dataset::Options::unlabeled leaves unread.
void RemoveAnswers(proto::Dataset* dataset);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_DATA_FILES_H_
