// SPDX-License-Identifier: Apache-2.0
#include "common/data/data_files.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"

namespace holdfast {
namespace {

absl::Status CheckArrayFiles(const std::vector<std::string>& files,
                             AnswerKind answers) {
  if (answers == AnswerKind::kNone) {
    if (files.size() == 1) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("array data without answers have one file, the inputs; "
                     "there are ",
                     files.size()));
  }
  if (files.size() == 2 || files.size() == 3) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("array data have two or three files: inputs, ",
                   answers == AnswerKind::kLabels ? "labels" : "targets",
                   ", and weights if there are any; there are ", files.size()));
}

// For an Idx or Npy.
template <typename Arrays>
void SetAnswers(const std::vector<std::string>& files, AnswerKind answers,
                Arrays* arrays) {
  if (answers == AnswerKind::kLabels) arrays->set_labels(files[1]);
  if (answers == AnswerKind::kTargets) arrays->set_targets(files[1]);
  if (files.size() > 2) arrays->set_weights(files[2]);
}

template <typename Arrays>
void RemoveArrays(Arrays* arrays) {
  arrays->clear_labels();
  arrays->clear_targets();
  arrays->clear_weights();
}

// For the columns of a table, or the features of records.
template <typename Parts>
void RemoveParts(Parts* parts) {
  parts->erase(std::remove_if(parts->begin(), parts->end(),
                              [](const auto& part) {
                                return part.has_label() || part.has_target() ||
                                       part.has_weight();
                              }),
               parts->end());
}

}  // namespace

absl::Status SetDataFiles(const std::vector<std::string>& files,
                          AnswerKind answers, proto::Dataset* dataset) {
  absl::Status status;
  switch (dataset->kind_case()) {
    case proto::Dataset::kIdx:
      status = CheckArrayFiles(files, answers);
      if (!status.ok()) return status;
      dataset->clear_idx();
      dataset->mutable_idx()->set_images(files[0]);
      SetAnswers(files, answers, dataset->mutable_idx());
      return absl::OkStatus();
    case proto::Dataset::kNpy:
      status = CheckArrayFiles(files, answers);
      if (!status.ok()) return status;
      dataset->clear_npy();
      dataset->mutable_npy()->set_inputs(files[0]);
      SetAnswers(files, answers, dataset->mutable_npy());
      return absl::OkStatus();
    case proto::Dataset::kCsv:
      dataset->mutable_csv()->mutable_files()->Assign(files.begin(),
                                                      files.end());
      return absl::OkStatus();
    case proto::Dataset::kTfrecord:
      dataset->mutable_tfrecord()->mutable_files()->Assign(files.begin(),
                                                           files.end());
      return absl::OkStatus();
    case proto::Dataset::kCriteo:
      dataset->mutable_criteo()->mutable_files()->Assign(files.begin(),
                                                         files.end());
      return absl::OkStatus();
    case proto::Dataset::kLibsvm:
      dataset->mutable_libsvm()->mutable_files()->Assign(files.begin(),
                                                         files.end());
      return absl::OkStatus();
    case proto::Dataset::kImages:
      if (files.size() != 1) {
        return absl::InvalidArgumentError(absl::StrCat(
            "images are in one folder, with a folder for each class; there "
            "are ",
            files.size()));
      }
      dataset->mutable_images()->set_folder(files[0]);
      return absl::OkStatus();
    case proto::Dataset::kRegistered:
    case proto::Dataset::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      "the job's data set does not consist of files");
}

AnswerKind AnswersOf(const proto::Dataset& dataset) {
  const auto has_target = [](const auto& part) { return part.has_target(); };
  const auto& columns = dataset.csv().columns();
  const auto& features = dataset.tfrecord().features();
  const bool targets =
      !dataset.idx().targets().empty() || !dataset.npy().targets().empty() ||
      dataset.libsvm().targets() ||
      std::any_of(columns.begin(), columns.end(), has_target) ||
      std::any_of(features.begin(), features.end(), has_target);
  return targets ? AnswerKind::kTargets : AnswerKind::kLabels;
}

void RemoveAnswers(proto::Dataset* dataset) {
  if (dataset->has_images()) dataset->mutable_images()->clear_classes();
  if (dataset->has_idx()) RemoveArrays(dataset->mutable_idx());
  if (dataset->has_npy()) RemoveArrays(dataset->mutable_npy());
  if (dataset->has_csv())
    RemoveParts(dataset->mutable_csv()->mutable_columns());
  if (dataset->has_tfrecord()) {
    RemoveParts(dataset->mutable_tfrecord()->mutable_features());
  }
}

}  // namespace holdfast
