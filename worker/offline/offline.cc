// SPDX-License-Identifier: Apache-2.0
#include "worker/offline/offline.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/data_file.h"
#include "common/checkpoint/directory.h"
#include "common/data/data_files.h"
#include "common/data/dataset.h"
#include "common/data/subset_dataset.h"
#include "common/job/job_file.h"
#include "common/tensor/shape.h"
#include "glog/logging.h"
#include "worker/backend/device.h"
#include "worker/input/hooked_source.h"
#include "worker/input/sequential_batches.h"
#include "worker/job_resolution.h"
#include "worker/offline/checkpoint_model.h"
#include "worker/offline/prediction_file.h"
#include "worker/precision.h"
#include "worker/trainer/batch_rows.h"
#include "worker/trainer/evaluator.h"
#include "worker/trainer/scores.h"

namespace holdfast {
namespace {

constexpr absl::Duration kTellEvery = absl::Seconds(5);
constexpr int64_t kDefaultBatchSize = 1000;

// Logs from time to time how many examples have been read.
class Progress {
 public:
  Progress(const ExampleSource* source, absl::string_view done)
      : total_(source->num_examples()),
        done_(done),
        source_(source, [this] { Count(); }) {}

  const ExampleSource* source() const { return &source_; }

 private:
  void Count() {
    ++read_;
    // Reading the clock takes as long as a few examples.
    if (read_ % 256 != 0) return;
    const absl::Time now = SteadyNow();
    if (now - told_ < kTellEvery) return;
    told_ = now;
    LOG(INFO) << done_ << " " << read_ << " of " << total_ << " examples";
  }

  const int64_t total_;
  const std::string done_;
  int64_t read_ = 0;
  absl::Time told_ = SteadyNow();
  const HookedSource source_;
};

// The inputs of another source, with labels or targets of 0, as the model
// requires some.
class Unanswered final : public ExampleSource {
 public:
  Unanswered(const ExampleSource* source, int64_t num_targets)
      : source_(*source), spec_(source->spec()) {
    spec_.num_classes.reset();
    spec_.num_targets = num_targets;
    spec_.weighted = false;
  }

  int64_t num_examples() const override { return source_.num_examples(); }
  const ExampleSpec& spec() const override { return spec_; }
  absl::Status Read(int64_t index, const ExampleMemory& to) const override {
    int32_t ignored = 0;
    ExampleMemory inputs;
    inputs.input = to.input;
    inputs.ids = to.ids;
    inputs.id_counts = to.id_counts;
    inputs.id_values = to.id_values;
    inputs.label = &ignored;
    std::fill(to.targets.begin(), to.targets.end(), 0.0f);
    if (to.label != nullptr) *to.label = 0;
    return source_.Read(index, inputs);
  }

 private:
  const ExampleSource& source_;
  ExampleSpec spec_;
};

// A checkpoint and its job, which everything here needs.
struct Opened {
  std::unique_ptr<CheckpointReader> reader;
  proto::Job job;
  std::unique_ptr<Backend> backend;

  // Empty for checkpoints that contain no job file.
  const proto::DeclaredJob& declared() const {
    return reader->manifest().declaration().job();
  }
  bool has_declared() const {
    return reader->manifest().declaration().has_job();
  }
  AnswerKind answers() const {
    if (!has_declared()) return AnswersOf(Examples());
    return declared().num_targets() > 0 ? AnswerKind::kTargets
                                        : AnswerKind::kLabels;
  }
  // The data set that the job is evaluated on, otherwise the one that it is
  // trained on.
  const proto::Dataset& Examples() const {
    return job.data().has_test() ? job.data().test() : job.data().train();
  }
};

absl::StatusOr<Opened> Open(const OfflineOptions& options) {
  Opened opened;
  HOLDFAST_ASSIGN_OR_RETURN(auto reader, OpenCheckpoint(options.checkpoint));
  opened.reader = std::move(reader);
  const auto declared =
      DeclaredJobFile(opened.reader->manifest().declaration());
  if (options.job.has_value()) {
    if (absl::IsDataLoss(declared.status())) return declared.status();
    opened.job = *options.job;
    HOLDFAST_RETURN_IF_ERROR(
        ResolveFrom(declared.ok() ? *declared : proto::Job(), &opened.job));
  } else {
    if (!declared.ok()) {
      return absl::Status(
          declared.status().code(),
          absl::StrCat(options.checkpoint, ": ", declared.status().message(),
                       "; name the job file with --job"));
    }
    opened.job = *declared;
    if (options.data.empty()) {
      return absl::InvalidArgumentError(
          "a checkpoint does not contain paths of data: name files with "
          "--data, or the job file with --job");
    }
  }
  DeviceOptions device = options.device;
  device.precision = PrecisionOf(opened.job);
  device.activations = RoundsActivations(opened.job);
  HOLDFAST_ASSIGN_OR_RETURN(auto backend, CreateBackend(options.place, device));
  opened.backend = std::move(backend);
  return opened;
}

// The data set to use. With --data the format is that of the test set or, if
// there is none, of the training set.
absl::StatusOr<proto::Dataset> DatasetOf(const OfflineOptions& options,
                                         const Opened& opened,
                                         bool has_answers) {
  proto::Dataset dataset = opened.Examples();
  if (!options.data.empty()) {
    HOLDFAST_RETURN_IF_ERROR(SetDataFiles(
        options.data, has_answers ? opened.answers() : AnswerKind::kNone,
        &dataset));
  }
  if (!has_answers) {
    RemoveAnswers(&dataset);
  } else if (dataset.has_images() && dataset.images().classes().empty()) {
    return absl::InvalidArgumentError(
        "the checkpoint was written by a version that did not record the class "
        "of each folder: list `classes` in the job file, and name it with "
        "--job");
  }
  return dataset;
}

// Returns the number of targets for examples with these inputs.
// Errors: those of CreateModel.
absl::StatusOr<int64_t> NumTargets(const Opened& opened,
                                   const ExampleSpec& examples,
                                   const ModelRegistry& models) {
  if (opened.has_declared() || opened.answers() != AnswerKind::kTargets) {
    return opened.declared().num_targets();
  }
  // One for each output.
  ExampleSpec inputs = examples;
  inputs.num_classes.reset();
  HOLDFAST_ASSIGN_OR_RETURN(
      const auto model,
      CreateModel(opened.job.model(), inputs, opened.job.seed(),
                  opened.backend.get(), models));
  return model->Outputs().count;
}

// Errors: INVALID_ARGUMENT when `found` differs from what the model was trained
// on.
absl::Status CheckInputs(const Opened& opened, const ExampleSpec& found) {
  if (!opened.has_declared()) return absl::OkStatus();
  const auto& fields = opened.declared().id_fields();
  if (fields.size() != static_cast<int>(found.id_fields.size()) ||
      opened.declared().id_values() != found.id_values) {
    return absl::InvalidArgumentError(
        absl::StrCat("the data's examples have ids of ", found.id_fields.size(),
                     " fields", found.id_values ? " with values" : "",
                     "; the model was trained on ", fields.size(), " fields",
                     opened.declared().id_values() ? " with values" : ""));
  }
  std::vector<IdField> trained_ids;
  for (const proto::DeclaredJob::IdField& field : fields) {
    trained_ids.push_back({field.name(), field.max_ids(), field.origin()});
  }
  HOLDFAST_RETURN_IF_ERROR(CheckIdsAlike(found.id_fields, trained_ids));
  const auto& trained = opened.declared().example_shape();
  if (absl::MakeConstSpan(trained) == absl::MakeConstSpan(found.shape)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "the data's examples have the shape ", ShapeString(found.shape),
      "; the model was trained on ", ShapeString(trained)));
}

// Errors: INVALID_ARGUMENT when there is no data set for DatasetOf to return.
absl::Status CheckHasData(const OfflineOptions& options, const Opened& opened) {
  if (!options.data.empty() || opened.job.data().has_test()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "the job has no test set: name files with --data");
}

// Opens the data set of DatasetOf, or the job's holdout.
absl::StatusOr<std::unique_ptr<Dataset>> OpenToEvaluate(
    const OfflineOptions& options, const Opened& opened) {
  const proto::Data& data = opened.job.data();
  const bool held_out = options.data.empty() && data.has_holdout();
  if (!held_out) {
    HOLDFAST_RETURN_IF_ERROR(CheckHasData(options, opened));
  }
  HOLDFAST_ASSIGN_OR_RETURN(auto config,
                            DatasetOf(options, opened, /*has_answers=*/true));
  HOLDFAST_ASSIGN_OR_RETURN(
      auto dataset, OpenJobDataset(config, data, options.reading, "evaluate"));
  const absl::Status status = CheckInputs(opened, dataset->spec());
  if (!status.ok()) return status;
  if (!held_out) return dataset;
  HOLDFAST_ASSIGN_OR_RETURN(
      auto parts,
      SubsetDataset::HoldOut(std::shared_ptr<const Dataset>(std::move(dataset)),
                             data));
  return std::move(parts.held_out);
}

proto::CheckpointEvaluation::Scores ScoresOf(const EvaluationScores& scores) {
  const proto::EvaluationResult& result = scores.result;
  proto::CheckpointEvaluation::Scores told;
  told.set_loss(result.loss());
  if (result.has_accuracy()) told.set_accuracy(result.accuracy());
  if (result.has_mean_absolute_error()) {
    told.set_mean_absolute_error(result.mean_absolute_error());
  }
  if (result.has_mean_squared_error()) {
    told.set_mean_squared_error(result.mean_squared_error());
  }
  if (result.has_top_k_accuracy()) {
    told.set_top_k_accuracy(result.top_k_accuracy());
  }
  if (result.has_auc()) told.set_auc(result.auc());
  if (result.has_calibration()) told.set_calibration(result.calibration());
  told.mutable_by_class()->Assign(scores.by_class.begin(),
                                  scores.by_class.end());
  return told;
}

}  // namespace

absl::StatusOr<proto::CheckpointEvaluation> EvaluateCheckpoint(
    const OfflineOptions& options, bool int8, const ModelRegistry& models) {
  HOLDFAST_ASSIGN_OR_RETURN(auto opened, Open(options));
  HOLDFAST_ASSIGN_OR_RETURN(auto dataset, OpenToEvaluate(options, opened));
  HOLDFAST_ASSIGN_OR_RETURN(
      auto loaded, LoadModel(opened.reader.get(), opened.job, dataset->spec(),
                             models, opened.backend.get()));
  const proto::Evaluation& config = opened.job.evaluation();
  absl::Status status =
      CheckScores(config, loaded.model->Outputs(), dataset->spec());
  if (!status.ok()) return status;

  proto::CheckpointEvaluation told;
  told.set_checkpoint(FolderName(opened.reader->manifest().name()));
  const auto evaluate =
      [&](const Parameters& parameters) -> absl::StatusOr<EvaluationScores> {
    const Progress progress(dataset.get(), "evaluated");
    return EvaluateOn(*progress.source(), config, parameters, loaded.ReadRows(),
                      loaded.model.get(),
                      /*cancelled=*/nullptr);
  };
  HOLDFAST_ASSIGN_OR_RETURN(const auto scores, evaluate(loaded.parameters));
  told.set_step(static_cast<double>(scores.result.step()));
  told.set_examples(static_cast<double>(scores.result.examples()));
  *told.mutable_float32() = ScoresOf(scores);
  LOG(INFO) << DescribeEvaluation(scores.result);
  if (!int8) return told;
  HOLDFAST_ASSIGN_OR_RETURN(
      const auto rounded,
      evaluate(RoundedToInt8(loaded.parameters, loaded.model->Variables())));
  *told.mutable_int8() = ScoresOf(rounded);
  LOG(INFO) << "with 8-bit integers: " << DescribeEvaluation(rounded.result);
  return told;
}

absl::Status PredictWithCheckpoint(const OfflineOptions& options,
                                   const std::string& output,
                                   const ModelRegistry& models) {
  HOLDFAST_ASSIGN_OR_RETURN(auto opened, Open(options));
  absl::Status status = CheckHasData(options, opened);
  if (!status.ok()) return status;
  HOLDFAST_ASSIGN_OR_RETURN(const auto config,
                            DatasetOf(options, opened, /*has_answers=*/false));
  DataOptions reading = options.reading;
  reading.unlabeled = true;
  HOLDFAST_ASSIGN_OR_RETURN(
      auto dataset,
      OpenJobDataset(config, opened.job.data(), reading, "predict"));
  status = CheckInputs(opened, dataset->spec());
  if (!status.ok()) return status;
  HOLDFAST_ASSIGN_OR_RETURN(const auto targets,
                            NumTargets(opened, dataset->spec(), models));
  const Unanswered inputs(dataset.get(), targets);
  HOLDFAST_ASSIGN_OR_RETURN(
      auto loaded, LoadModel(opened.reader.get(), opened.job, inputs.spec(),
                             models, opened.backend.get()));
  const OutputSpec outputs = loaded.model->Outputs();
  if (outputs.count == 0) {
    return absl::UnimplementedError(
        absl::StrCat("the model \"", opened.job.model().registered().name(),
                     "\" returns no outputs: it must implement Model::Outputs "
                     "(worker/model/model.h)"));
  }

  PredictionColumns columns =
      ColumnsOf(opened.job, outputs.count, outputs.predict_class);
  if (!dataset->FileOf(0).empty()) {
    columns.file_of = [&dataset](int64_t example) {
      return dataset->FileOf(example);
    };
  }
  HOLDFAST_ASSIGN_OR_RETURN(
      auto file,
      PredictionFile::Create(output, std::move(columns), outputs.count));
  const Progress progress(&inputs, "predicted");
  const proto::Evaluation& evaluation = opened.job.evaluation();
  SequentialBatches batches(
      progress.source(),
      evaluation.has_batch_size() ? evaluation.batch_size() : kDefaultBatchSize,
      FieldsOf(*loaded.model));
  BatchRows rows(loaded.model->Tables().size());
  const std::vector<absl::Span<const float>> values = loaded.parameters.All();
  for (;;) {
    HOLDFAST_ASSIGN_OR_RETURN(auto batch, batches.Next());
    if (batch.size() == 0) break;
    batch.wants_outputs = true;
    status = rows.Bring(Parameters(), loaded.ReadRows(), &batch);
    if (!status.ok()) return status;
    HOLDFAST_ASSIGN_OR_RETURN(const auto result,
                              loaded.model->Evaluate(values, batch));
    status = file->Add(result.outputs);
    if (!status.ok()) return status;
  }
  return file->Finish();
}

}  // namespace holdfast
