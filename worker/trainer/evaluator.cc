// SPDX-License-Identifier: Apache-2.0
#include "worker/trainer/evaluator.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/job/evaluation_figures.h"
#include "glog/logging.h"
#include "worker/input/sequential_batches.h"

namespace holdfast {

namespace {

constexpr int64_t kDefaultBatchSize = 1000;

// The sums of the models' own results over batches.
class BatchSums {
 public:
  void Add(const BatchResult& result) {
    examples_ += result.examples;
    loss_ += result.loss_sum;
    const auto add = [](const auto& term, auto* sum) {
      if (term.has_value()) *sum = sum->value_or(0) + *term;
    };
    add(result.correct, &correct_);
    add(result.absolute_error_sum, &absolute_error_);
    add(result.squared_error_sum, &squared_error_);
  }

  void Tell(proto::EvaluationResult* result) const {
    const double examples = static_cast<double>(examples_);
    result->set_examples(examples_);
    result->set_loss(loss_ / examples);
    if (correct_.has_value()) {
      result->set_accuracy(static_cast<double>(*correct_) / examples);
    }
    if (absolute_error_.has_value()) {
      result->set_mean_absolute_error(*absolute_error_ / examples);
    }
    if (squared_error_.has_value()) {
      result->set_mean_squared_error(*squared_error_ / examples);
    }
  }

 private:
  int64_t examples_ = 0;
  double loss_ = 0;
  std::optional<int64_t> correct_;
  std::optional<double> absolute_error_;
  std::optional<double> squared_error_;
};

}  // namespace

absl::StatusOr<EvaluationScores> EvaluateOn(
    const ExampleSource& test_set, const proto::Evaluation& config,
    const Parameters& parameters, const RowSource& read_rows, Model* model,
    const std::atomic<bool>* cancelled) {
  const std::vector<absl::Span<const float>> values = parameters.All();
  const OutputSpec outputs = model->Outputs();
  SequentialBatches batches(
      &test_set,
      config.has_batch_size() ? config.batch_size() : kDefaultBatchSize,
      FieldsOf(*model));
  BatchRows rows(model->Tables().size());
  BatchSums sums;
  const std::vector<std::unique_ptr<Score>> scores =
      MakeScores(config, outputs, test_set.num_examples());
  for (;;) {
    if (cancelled != nullptr && *cancelled) {
      return absl::CancelledError("the evaluation was abandoned");
    }
    HOLDFAST_ASSIGN_OR_RETURN(auto batch, batches.Next());
    if (batch.size() == 0) break;
    batch.wants_outputs = !scores.empty();
    HOLDFAST_RETURN_IF_ERROR(rows.Bring(Parameters(), read_rows, &batch));
    HOLDFAST_ASSIGN_OR_RETURN(const auto result,
                              model->Evaluate(values, batch));
    sums.Add(result);
    if (scores.empty()) continue;
    const int64_t expected = batch.size() * outputs.count;
    if (static_cast<int64_t>(result.outputs.size()) != expected) {
      return absl::InternalError(absl::StrCat(
          "the model returned ", result.outputs.size(), " outputs for ",
          batch.size(), " examples; it has ", outputs.count, " for each"));
    }
    for (const std::unique_ptr<Score>& score : scores) {
      HOLDFAST_RETURN_IF_ERROR(score->Add(batch, result.outputs));
    }
  }
  EvaluationScores all;
  all.result.set_step(parameters.version.value());
  sums.Tell(&all.result);
  for (const std::unique_ptr<Score>& score : scores) score->Tell(&all);
  return all;
}

std::string DescribeEvaluation(const proto::EvaluationResult& result) {
  std::string text =
      absl::StrCat("step ", result.step(), ": test loss ", result.loss());
  for (const EvaluationFigure& figure : FiguresOf(result)) {
    absl::StrAppend(&text, ", ", figure.words, " ", figure.value);
  }
  return text;
}

Evaluator::Evaluator(Cluster* cluster, Model* model,
                     const ExampleSource* test_set, const Clock* clock,
                     const Options& options)
    : cluster_(cluster),
      model_(model),
      test_set_(test_set),
      clock_(clock),
      options_(options),
      strand_("evaluator") {
  parameters_.SetHostMemory(options_.host_memory);
}

Evaluator::~Evaluator() { cancelled_ = true; }

absl::Status Evaluator::Start(absl::Time deadline) {
  HOLDFAST_RETURN_IF_ERROR(Finish(deadline));
  absl::StatusOr<std::unique_ptr<Cluster::Pin>> pin =
      cluster_->PinVersion(options_.hold, deadline);
  if (!pin.ok()) return pin.status();
  {
    absl::MutexLock lock(&mutex_);
    idle_ = false;
  }
  strand_.Post([this, pin = *std::move(pin)]() mutable {
    absl::Status status = Evaluate(*pin);
    pin.reset();
    absl::MutexLock lock(&mutex_);
    status_ = std::move(status);
    idle_ = true;
  });
  return absl::OkStatus();
}

absl::Status Evaluator::Finish(absl::Time deadline) {
  absl::MutexLock lock(&mutex_);
  if (!mutex_.AwaitWithTimeout(absl::Condition(&idle_),
                               deadline - SteadyNow())) {
    return absl::DeadlineExceededError(
        "the evaluation under way has not ended in time; it takes longer than "
        "a step may (timeouts.step_seconds of the job)");
  }
  return std::exchange(status_, absl::OkStatus());
}

void Evaluator::Drop() {
  cancelled_ = true;
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(&idle_));
  status_ = absl::OkStatus();
  cancelled_ = false;
}

absl::Status Evaluator::Evaluate(Cluster::Pin& pin) {
  const absl::Time begin = clock_->Now();
  absl::Status status =
      pin.StartRead(&parameters_)->Await(begin + options_.call_timeout);
  if (!status.ok()) return status;
  const RowSource read_rows = [&](Parameters* rows) {
    return pin.StartRead(rows)->Await(clock_->Now() + options_.call_timeout);
  };
  HOLDFAST_ASSIGN_OR_RETURN(const auto scores,
                            EvaluateOn(*test_set_, options_.config, parameters_,
                                       read_rows, model_, &cancelled_));
  LOG(INFO) << DescribeEvaluation(scores.result) << " ("
            << clock_->Now() - begin << ")";
  return cluster_->ReportEvaluation(scores.result,
                                    clock_->Now() + options_.call_timeout);
}

}  // namespace holdfast
