#include "worker/trainer/evaluator.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "glog/logging.h"
#include "worker/input/sequential_batches.h"

namespace holdfast {

absl::StatusOr<proto::EvaluationResult> EvaluateOn(
    const ExampleSource& test_set, int64_t batch_size,
    const Parameters& parameters, Model* model,
    const std::atomic<bool>* cancelled) {
  const std::vector<absl::Span<const float>> values = parameters.All();
  SequentialBatches batches(&test_set, batch_size);
  int64_t examples = 0;
  double loss_sum = 0;
  std::optional<int64_t> correct;
  std::optional<double> absolute_error_sum;
  for (;;) {
    if (cancelled != nullptr && *cancelled) {
      return absl::CancelledError("evaluation was given up");
    }
    const absl::StatusOr<Batch> batch = batches.Next();
    if (!batch.ok()) return batch.status();
    if (batch->size() == 0) break;
    const absl::StatusOr<BatchResult> result = model->Evaluate(values, *batch);
    if (!result.ok()) return result.status();
    examples += result->examples;
    loss_sum += result->loss_sum;
    if (result->correct.has_value()) {
      correct = correct.value_or(0) + *result->correct;
    }
    if (result->absolute_error_sum.has_value()) {
      absolute_error_sum =
          absolute_error_sum.value_or(0) + *result->absolute_error_sum;
    }
  }
  proto::EvaluationResult result;
  result.set_step(parameters.version.value());
  result.set_examples(examples);
  result.set_loss(loss_sum / examples);
  if (correct.has_value()) {
    result.set_accuracy(static_cast<double>(*correct) / examples);
  }
  if (absolute_error_sum.has_value()) {
    result.set_mean_absolute_error(*absolute_error_sum / examples);
  }
  return result;
}

std::string DescribeEvaluation(const proto::EvaluationResult& result) {
  std::string text =
      absl::StrCat("step ", result.step(), ": test loss ", result.loss());
  if (result.has_accuracy()) {
    absl::StrAppend(&text, ", accuracy ", result.accuracy());
  }
  if (result.has_mean_absolute_error()) {
    absl::StrAppend(&text, ", mean absolute error ",
                    result.mean_absolute_error());
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
      strand_("evaluator") {}

Evaluator::~Evaluator() { cancelled_ = true; }

absl::Status Evaluator::Start(absl::Time deadline) {
  if (absl::Status status = Finish(deadline); !status.ok()) return status;
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
  const absl::StatusOr<proto::EvaluationResult> result = EvaluateOn(
      *test_set_, options_.batch_size, parameters_, model_, &cancelled_);
  if (!result.ok()) return result.status();
  LOG(INFO) << DescribeEvaluation(*result) << " (" << clock_->Now() - begin
            << ")";
  return cluster_->ReportEvaluation(*result,
                                    clock_->Now() + options_.call_timeout);
}

}  // namespace holdfast
