// SPDX-License-Identifier: Apache-2.0
#include "worker/job_data.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/data/reading_progress.h"
#include "common/tensor/shape.h"
#include "glog/logging.h"

namespace holdfast {
namespace {

void Log(const std::string& line) { LOG(INFO) << line; }

void TellOf(const Dataset& dataset, absl::string_view purpose) {
  const Dataset::Footprint footprint = dataset.footprint();
  const bool makes_examples = footprint.memory == 0 && footprint.mapped == 0;
  LOG(INFO) << dataset.num_examples() << " examples to " << purpose << " on"
            << (makes_examples
                    ? ""
                    : absl::StrCat(": ", SizeText(footprint.memory),
                                   " in memory, ", SizeText(footprint.mapped),
                                   " in mapped files"));
  LOG_IF(INFO, dataset.digest_is_sampled())
      << "their digest covers samples only: sizes, headers and some blocks "
         "(docs/data.md)";
  if (dataset.skipped_rows() == 0) return;
  LOG(WARNING) << dataset.skipped_rows()
               << " rows were skipped (skip_bad_rows); the first errors:\n"
               << absl::StrJoin(dataset.skipped_because(), "\n");
}

// Errors: INVALID_ARGUMENT, naming what differs.
absl::Status CheckAlike(const ExampleSpec& tested, const ExampleSpec& trained) {
  if (tested.shape != trained.shape) {
    return absl::InvalidArgumentError(
        absl::StrCat("the examples of the test set have the shape ",
                     ShapeString(tested.shape), ", those of the training set ",
                     ShapeString(trained.shape)));
  }
  const auto ids = [](const ExampleSpec& spec) {
    if (spec.id_fields.empty()) return std::string("no ids");
    return absl::StrCat(
        spec.id_values ? "ids with values" : "ids", " of the fields ",
        absl::StrJoin(spec.id_fields, ", ",
                      [](std::string* out, const IdField& field) {
                        out->append(field.name);
                      }));
  };
  // The maximum number of ids per field may differ.
  if (ids(tested) != ids(trained)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the examples of the test set have ", ids(tested),
                     ", those of the training set ", ids(trained)));
  }
  if (tested.num_targets == trained.num_targets) return absl::OkStatus();
  const auto answers = [](const ExampleSpec& spec) {
    return spec.num_targets == 0 ? "labels"
                                 : absl::StrCat(spec.num_targets, " targets");
  };
  return absl::InvalidArgumentError(
      absl::StrCat("the examples of the test set have ", answers(tested),
                   ", those of the training set ", answers(trained)));
}

absl::StatusOr<std::unique_ptr<Dataset>> OpenQuietly(
    const proto::Dataset& dataset, const proto::Data& data,
    const DataOptions& options) {
  const SteadyClock clock;
  ReadingProgress progress({&clock, Log});
  Dataset::Options reading = Dataset::OptionsOf(data);
  reading.unlabeled = options.unlabeled;
  reading.reading = {options.threads, options.cache.get(), &progress};
  return OpenDataset(dataset, reading, *options.registry);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenJobDataset(
    const proto::Dataset& dataset, const proto::Data& data,
    const DataOptions& options, absl::string_view purpose) {
  auto opened = OpenQuietly(dataset, data, options);
  if (opened.ok()) TellOf(**opened, purpose);
  return opened;
}

absl::StatusOr<JobData> JobData::Open(const proto::Data& config,
                                      const DataOptions& options) {
  JobData data(config, options);
  HOLDFAST_ASSIGN_OR_RETURN(auto train_set,
                            OpenQuietly(config.train(), config, options));
  if (config.has_holdout()) {
    HOLDFAST_ASSIGN_OR_RETURN(
        auto parts,
        SubsetDataset::HoldOut(
            std::shared_ptr<const Dataset>(std::move(train_set)), config));
    data.train_set_ = std::move(parts.kept);
    data.held_out_ = std::move(parts.held_out);
  } else {
    data.train_set_ = std::move(train_set);
  }
  TellOf(*data.train_set_, "train");
  return data;
}

absl::Status CheckIdsAlike(const std::vector<IdField>& tested,
                           const std::vector<IdField>& trained) {
  for (size_t i = 0; i < std::min(tested.size(), trained.size()); ++i) {
    const std::string& found = tested[i].origin;
    const std::string& expected = trained[i].origin;
    if (found.empty() || expected.empty() || found == expected) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "the ids of \"", tested[i].name, "\" are ", found,
        " in the test set, and ", expected,
        " in the training set, so they name other rows; make both the same way "
        "(`numbers` and `group` of its column)"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Dataset>> JobData::OpenTestSet() const {
  if (held_out_ != nullptr) {
    LOG(INFO) << held_out_->num_examples() << " examples to test on";
    return std::make_unique<SubsetDataset>(*held_out_);
  }
  if (!config_.has_test()) return nullptr;
  auto test_set = OpenJobDataset(config_.test(), config_, options_, "test");
  if (!test_set.ok()) return test_set.status();
  absl::Status status = CheckAlike((*test_set)->spec(), train_set_->spec());
  status.Update(CheckIdsAlike((*test_set)->spec().id_fields,
                              train_set_->spec().id_fields));
  if (!status.ok()) return status;
  return test_set;
}

}  // namespace holdfast
