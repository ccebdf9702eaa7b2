// SPDX-License-Identifier: Apache-2.0
#include "common/job/job_data_rules.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/job/job_file.h"
#include "google/protobuf/util/message_differencer.h"

namespace holdfast {
namespace {

// For an Idx or Npy at `path`.
template <typename Arrays>
void CheckArrays(const Arrays& arrays, const std::string& path,
                 std::vector<BrokenRule>* broken) {
  if (arrays.labels().empty() != arrays.targets().empty()) return;
  broken->push_back(
      {path, arrays.labels().empty()
                 ? "needs labels, the examples' classes, or targets, the "
                   "numbers that the outputs should be"
                 : "has labels and targets: an example has a class or targets, "
                   "not both"});
}

// Rejects duplicates in the list of values at `path`.
void CheckValues(const google::protobuf::RepeatedPtrField<std::string>& values,
                 const std::string& path, std::vector<BrokenRule>* broken) {
  std::set<absl::string_view> seen;
  for (int i = 0; i < values.size(); ++i) {
    if (seen.insert(values[i]).second) continue;
    broken->push_back(
        {absl::StrCat(path, ".values[", i, "]"),
         absl::StrCat("\"", absl::CEscape(values[i]), "\" is listed twice")});
    return;
  }
}

// Checks the numbers of labels, targets and weights in the list at `path`.
void CheckAnswers(int labels, int targets, int weights, const std::string& path,
                  std::vector<BrokenRule>* broken) {
  if ((labels == 0) == (targets == 0) || labels > 1) {
    broken->push_back({path, absl::StrCat("needs one label, or targets: has ",
                                          labels, " and ", targets)});
  }
  if (weights > 1) {
    broken->push_back({path, absl::StrCat("takes one weight, has ", weights)});
  }
}

// For a Number, Numbers or Normalization at `path`.
template <typename Numbers>
void CheckMoments(const Numbers& numbers, const std::string& path,
                  std::vector<BrokenRule>* broken) {
  if (!numbers.computed()) return;
  if (numbers.mean() == 0 && !numbers.has_stddev()) return;
  broken->push_back(
      {path + ".computed", "replaces mean and stddev: leave them out"});
}

// For a Label at `path`.
template <typename Label>
void CheckLabel(const Label& label, const std::string& path,
                std::vector<BrokenRule>* broken) {
  CheckValues(label.values(), path, broken);
  if (!label.computed() || label.values().empty()) return;
  broken->push_back({path + ".computed", "replaces values: leave them out"});
}

// For an Ids at `path`, in a CSV file with this delimiter.
void CheckIds(const proto::CsvColumn::Ids& ids, absl::string_view delimiter,
              const std::string& path, std::vector<BrokenRule>* broken) {
  const std::string& separator = ids.separator();
  if (!separator.empty() && (separator.size() > 1 || separator == delimiter)) {
    broken->push_back(
        {path + ".separator",
         absl::StrCat(
             "must be one character other than the delimiter of cells, is \"",
             absl::CEscape(separator), "\"")});
  }
  if (ids.has_max_ids() && separator.empty()) {
    broken->push_back({path + ".max_ids",
                       "needs separator: a cell without one is a single id"});
  }
  if (!ids.numbers()) return;
  if (!ids.group().empty()) {
    broken->push_back({path + ".group",
                       "is for hashed ids: numbers are ids without hashing, "
                       "the same in all columns"});
  }
  if (ids.missing() == proto::CsvColumn::OWN) {
    broken->push_back({path + ".missing",
                       "must be REFUSE or NONE with numbers: an empty cell has "
                       "no number of its own"});
  }
}

void CheckColumn(const proto::CsvColumn& column, bool header,
                 absl::string_view delimiter, const std::string& path,
                 std::vector<BrokenRule>* broken) {
  if (column.name().empty() && column.range().empty()) {
    broken->push_back(
        {path, "needs name or range, to say which columns it is for"});
  }
  if (!header && !column.name().empty()) {
    broken->push_back(
        {path + ".name", "there are no names if header is false: use range"});
  }
  for (int i = 0; i < column.range_size(); ++i) {
    const proto::CsvColumn::Range& range = column.range(i);
    if (!range.has_last() || range.last() >= range.first()) continue;
    broken->push_back({absl::StrCat(path, ".range[", i, "].last"),
                       absl::StrCat("must be at least first, which is ",
                                    range.first(), ", is ", range.last())});
  }
  if (column.has_label()) CheckLabel(column.label(), path + ".label", broken);
  CheckMoments(column.number(), path + ".number", broken);
  CheckIds(column.ids(), delimiter, path + ".ids", broken);
  if (!column.has_category()) return;
  const proto::CsvColumn::Category& category = column.category();
  CheckValues(category.values(), path + ".category", broken);
  const int given = (category.values().empty() ? 0 : 1) +
                    (category.count() > 0 ? 1 : 0) +
                    (category.computed() ? 1 : 0);
  if (given != 1) {
    broken->push_back({path + ".category",
                       "needs values, or for whole numbers from 0 their count, "
                       "or computed: true"});
  }
}

void CheckCsv(const proto::Csv& csv, const std::string& path,
              std::vector<BrokenRule>* broken) {
  if (!csv.delimiter().empty() &&
      (csv.delimiter().size() > 1 ||
       absl::string_view("\"\r\n").find(csv.delimiter()[0]) !=
           absl::string_view::npos)) {
    broken->push_back(
        {path + ".delimiter",
         absl::StrCat(
             "must be one character other than a quote or a line end, is \"",
             absl::CEscape(csv.delimiter()), "\"")});
  }
  int inputs = 0, labels = 0, targets = 0, weights = 0;
  for (int i = 0; i < csv.columns_size(); ++i) {
    const proto::CsvColumn& column = csv.columns(i);
    CheckColumn(column, !csv.has_header() || csv.header(),
                csv.delimiter().empty() ? "," : csv.delimiter(),
                absl::StrCat(path, ".columns[", i, "]"), broken);
    const bool is_input =
        column.has_number() || column.has_category() || column.has_ids();
    inputs += is_input ? 1 : 0;
    labels += column.has_label() ? 1 : 0;
    targets += column.has_target() ? 1 : 0;
    weights += column.has_weight() ? 1 : 0;
  }
  if (csv.columns().empty()) return;
  const std::string columns = path + ".columns";
  if (inputs == 0) {
    broken->push_back({columns,
                       "has no number, no category and no ids, and so no "
                       "inputs"});
  }
  CheckAnswers(labels, targets, weights, columns, broken);
}

void CheckPicture(const proto::Picture& picture, const std::string& path,
                  std::vector<BrokenRule>* broken) {
  if (picture.channels() != 2) return;
  broken->push_back({path + ".channels",
                     "must be 1 (gray) or 3 (red, green and blue), is 2"});
}

void CheckTfRecord(const proto::TfRecord& tfrecord, const std::string& path,
                   std::vector<BrokenRule>* broken) {
  const std::string features = path + ".features";
  std::set<absl::string_view> names;
  int numbers = 0, arrays = 0, labels = 0, targets = 0, weights = 0;
  for (int i = 0; i < tfrecord.features_size(); ++i) {
    const proto::TfRecordFeature& feature = tfrecord.features(i);
    const std::string place = absl::StrCat(features, "[", i, "]");
    if (!feature.name().empty() && !names.insert(feature.name()).second) {
      broken->push_back(
          {place + ".name", absl::StrCat("\"", absl::CEscape(feature.name()),
                                         "\" is listed twice")});
    }
    if (feature.has_label()) {
      CheckLabel(feature.label(), place + ".label", broken);
    }
    CheckMoments(feature.numbers(), place + ".numbers", broken);
    if (feature.has_image()) {
      CheckPicture(feature.image(), place + ".image", broken);
      if (!tfrecord.shape().empty()) {
        broken->push_back(
            {path + ".shape",
             "is not for images, which have the shape of their `image`"});
      }
    }
    if (feature.has_raw() && tfrecord.shape().empty()) {
      broken->push_back(
          {place + ".raw", absl::StrCat("needs ", path, ".shape")});
    }
    numbers += feature.has_numbers() ? 1 : 0;
    arrays += feature.has_raw() || feature.has_image() ? 1 : 0;
    labels += feature.has_label() ? 1 : 0;
    targets += feature.has_target() ? 1 : 0;
    weights += feature.has_weight() ? 1 : 0;
  }
  if (tfrecord.features().empty()) return;
  if (numbers + arrays == 0) {
    broken->push_back(
        {features, "has no numbers, raw or image, and so no input"});
  }
  if (arrays > 1 || (arrays == 1 && numbers > 0)) {
    broken->push_back(
        {features,
         "has more inputs than raw or image, which must be the only input"});
  }
  CheckAnswers(labels, targets, weights, features, broken);
}

// Arrays are scaled and normalized by data.scale and data.normalization; other
// inputs have their own settings.
bool HasArrays(const proto::Dataset& dataset) {
  if (dataset.has_csv() || dataset.has_criteo() || dataset.has_libsvm() ||
      dataset.has_registered()) {
    return false;
  }
  if (!dataset.has_tfrecord()) return true;
  const auto& features = dataset.tfrecord().features();
  return std::any_of(features.begin(), features.end(),
                     [](const proto::TfRecordFeature& feature) {
                       return feature.has_raw() || feature.has_image();
                     });
}

// Values that are computed for the test set's parts, at `path`, are those of
// the training set.
template <typename Parts>
void CheckComputed(const Parts& train, const Parts& test,
                   const std::string& path, std::vector<BrokenRule>* broken) {
  using google::protobuf::util::MessageDifferencer;
  for (int i = 0; i < test.size(); ++i) {
    if (!IsComputed(test[i])) continue;
    const bool is_there =
        std::any_of(train.begin(), train.end(), [&](const auto& part) {
          return MessageDifferencer::Equals(part, test[i]);
        });
    if (is_there) continue;
    broken->push_back({absl::StrCat(path, "[", i, "]"),
                       "computed values come from the training set: data.train "
                       "must have the same entry"});
  }
}

void CheckDataset(const proto::Dataset& dataset, const std::string& path,
                  std::vector<BrokenRule>* broken) {
  if (dataset.has_idx()) CheckArrays(dataset.idx(), path + ".idx", broken);
  if (dataset.has_npy()) CheckArrays(dataset.npy(), path + ".npy", broken);
  if (dataset.has_csv()) CheckCsv(dataset.csv(), path + ".csv", broken);
  if (dataset.has_tfrecord()) {
    CheckTfRecord(dataset.tfrecord(), path + ".tfrecord", broken);
  }
  if (dataset.has_images()) {
    CheckPicture(dataset.images().picture(), path + ".images.picture", broken);
  }
}

}  // namespace

void CheckData(const proto::Data& data, std::vector<BrokenRule>* broken) {
  CheckDataset(data.train(), "data.train", broken);
  CheckDataset(data.test(), "data.test", broken);
  CheckComputed(data.train().csv().columns(), data.test().csv().columns(),
                "data.test.csv.columns", broken);
  CheckComputed(data.train().tfrecord().features(),
                data.test().tfrecord().features(),
                "data.test.tfrecord.features", broken);
  CheckMoments(data.normalization(), "data.normalization", broken);
  if (data.test().has_images() && data.test().images().classes().empty() &&
      !data.train().has_images()) {
    broken->push_back({"data.test.images",
                       "needs classes, in the order of the training set's "
                       "labels"});
  }
  if (!HasArrays(data.train())) {
    for (const auto& [set, field] :
         {std::pair(data.has_scale(), "scale"),
          std::pair(data.has_normalization(), "normalization")}) {
      if (!set) continue;
      broken->push_back(
          {absl::StrCat("data.", field),
           data.train().has_registered()
               ? "is for arrays: a registered source makes its inputs in their "
                 "final form"
           : data.train().has_criteo() || data.train().has_libsvm()
               ? "is for arrays: the format defines how its numbers are "
                 "transformed"
               : "is for arrays: columns of CSV files and numbers "
                 "of TFRecord files have a mean and stddev each"});
    }
  }
  if (data.has_shuffle_block() && data.shuffle() != proto::Data::BLOCKS) {
    broken->push_back({"data.shuffle_block", "is for shuffle: BLOCKS"});
  }
  if (data.has_test() && data.has_holdout()) {
    broken->push_back(
        {"data.holdout", "replaces data.test, which is also set"});
  }
}

}  // namespace holdfast
