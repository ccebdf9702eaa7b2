// SPDX-License-Identifier: Apache-2.0
#include "worker/trainer/scores.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/portable_math.h"
#include "common/base/status_macros.h"

namespace holdfast {
namespace {

int64_t NumClasses(int64_t num_outputs) {
  return std::max<int64_t>(num_outputs, 2);
}

}  // namespace

absl::Status TopKAccuracy::Add(const Batch& batch,
                               absl::Span<const float> outputs) {
  for (int64_t i = 0; i < batch.size(); ++i) {
    const auto of_example = outputs.subspan(i * num_outputs_, num_outputs_);
    const int64_t label = batch.labels[i];
    const float own = of_example[label];
    int64_t before = std::isnan(own) ? k_ : 0;
    for (int64_t j = 0; j < num_outputs_; ++j) {
      if (of_example[j] > own || (of_example[j] == own && j < label)) ++before;
    }
    right_ += before < k_ ? 1 : 0;
  }
  examples_ += batch.size();
  return absl::OkStatus();
}

void TopKAccuracy::Tell(EvaluationScores* scores) {
  scores->result.set_top_k_accuracy(static_cast<double>(right_) / examples_);
}

absl::Status AreaUnderCurve::Add(const Batch& batch,
                                 absl::Span<const float> outputs) {
  const int64_t size = values_.size();
  for (int64_t i = 0; i < batch.size(); ++i) {
    const float value =
        num_outputs_ == 1 ? outputs[i] : outputs[2 * i + 1] - outputs[2 * i];
    has_nan_ = has_nan_ || std::isnan(value);
    const int32_t label = batch.labels[i];
    if (label != 0 && label != 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "evaluation.auc: example ", positives_ + negatives_,
          " of the test set has the label ", label,
          "; the area under the curve is defined for two classes, 0 and 1"));
    }
    if (label == 1) {
      values_[positives_++] = value;
    } else {
      values_[size - ++negatives_] = value;
    }
  }
  return absl::OkStatus();
}

void AreaUnderCurve::Tell(EvaluationScores* scores) {
  if (positives_ == 0 || negatives_ == 0 || has_nan_) return;
  const auto positive = values_.begin();
  const auto positive_end = positive + positives_;
  const auto negative = values_.end() - negatives_;
  std::sort(positive, positive_end);
  std::sort(negative, values_.end());
  // A pair in the right order counts 2, and a pair with equal outputs counts 1,
  // so that the sum is an integer; it does not overflow for up to 4e9 examples.
  uint64_t halves = 0;
  auto below = negative;
  auto not_above = negative;
  for (auto value = positive; value != positive_end; ++value) {
    while (below != values_.end() && *below < *value) ++below;
    while (not_above != values_.end() && *not_above <= *value) ++not_above;
    halves += (below - negative) + (not_above - negative);
  }
  scores->result.set_auc(static_cast<double>(halves) / 2 /
                         (static_cast<double>(positives_) * negatives_));
}

absl::Status Calibration::Add(const Batch& batch,
                              absl::Span<const float> outputs) {
  for (int64_t i = 0; i < batch.size(); ++i, ++examples_) {
    const int32_t label = batch.labels[i];
    if (label != 0 && label != 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "evaluation.calibration: example ", examples_,
          " of the test set has the label ", label,
          "; the calibration is defined for two classes, 0 and 1"));
    }
    positives_ += label;
    predicted_ += 1 / (1 + PortableExp(-double{outputs[i]}));
  }
  return absl::OkStatus();
}

void Calibration::Tell(EvaluationScores* scores) {
  if (positives_ == 0 || std::isnan(predicted_)) return;
  scores->result.set_calibration(predicted_ / static_cast<double>(positives_));
}

ConfusionMatrix::ConfusionMatrix(int64_t num_outputs)
    : num_outputs_(num_outputs),
      num_classes_(NumClasses(num_outputs)),
      counts_(num_classes_ * num_classes_) {}

absl::Status ConfusionMatrix::Add(const Batch& batch,
                                  absl::Span<const float> outputs) {
  for (int64_t i = 0; i < batch.size(); ++i) {
    const auto of_example = outputs.subspan(i * num_outputs_, num_outputs_);
    const int64_t predicted =
        num_outputs_ == 1
            ? (of_example[0] > 0 ? 1 : 0)
            : std::max_element(of_example.begin(), of_example.end()) -
                  of_example.begin();
    ++counts_[batch.labels[i] * num_classes_ + predicted];
  }
  return absl::OkStatus();
}

void ConfusionMatrix::Tell(EvaluationScores* scores) {
  for (int64_t label = 0; label < num_classes_; ++label) {
    proto::TrainingResult::ClassScores& of_class =
        scores->by_class.emplace_back();
    int64_t examples = 0;
    int64_t predicted = 0;
    for (int64_t other = 0; other < num_classes_; ++other) {
      const int64_t count = counts_[label * num_classes_ + other];
      of_class.add_predicted(count);
      examples += count;
      predicted += counts_[other * num_classes_ + label];
    }
    const double right = counts_[label * num_classes_ + label];
    if (predicted > 0) of_class.set_precision(right / predicted);
    if (examples > 0) of_class.set_recall(right / examples);
  }
}

absl::Status CheckScores(const proto::Evaluation& config,
                         const OutputSpec& outputs,
                         const ExampleSpec& examples) {
  const auto error = [](absl::string_view field, const auto&... why) {
    return absl::InvalidArgumentError(
        absl::StrCat("evaluation.", field, ": ", why...));
  };
  const auto check = [&](absl::string_view field) {
    if (outputs.count == 0) {
      return error(field, "the model returns no outputs (Model::Outputs)");
    }
    if (examples.num_targets > 0) {
      return error(field,
                   "it is defined for classes, but the data have targets");
    }
    return absl::OkStatus();
  };
  if (config.has_top_k()) {
    HOLDFAST_RETURN_IF_ERROR(check("top_k"));
    if (!outputs.predict_class || config.top_k() >= outputs.count) {
      return error("top_k", config.top_k(), " of the model's ", outputs.count,
                   " outputs: must be fewer");
    }
  }
  if (config.auc()) {
    HOLDFAST_RETURN_IF_ERROR(check("auc"));
    if (outputs.count > 2) {
      return error(
          "auc", "the model has ", outputs.count,
          " outputs; the area under the curve is defined for two classes, "
          "from one output or two");
    }
  }
  if (config.calibration()) {
    HOLDFAST_RETURN_IF_ERROR(check("calibration"));
    if (outputs.count != 1) {
      return error(
          "calibration", "the model has ", outputs.count,
          " outputs; the calibration is defined for one, whose sigmoid is "
          "the probability of class 1");
    }
    if (!outputs.predict_class) {
      return error("calibration",
                   "the model predicts a number: its loss is not "
                   "sigmoid_cross_entropy");
    }
  }
  if (config.confusion_matrix()) {
    HOLDFAST_RETURN_IF_ERROR(check("confusion_matrix"));
    if (!outputs.predict_class) {
      return error("confusion_matrix",
                   "the model predicts a number: its loss takes the label as "
                   "one if there is a single output");
    }
    if (NumClasses(outputs.count) > ConfusionMatrix::kMaxClasses) {
      return error("confusion_matrix", "the model tells ", outputs.count,
                   " classes apart; the matrix is reported for at most ",
                   ConfusionMatrix::kMaxClasses);
    }
  }
  return absl::OkStatus();
}

std::vector<std::unique_ptr<Score>> MakeScores(const proto::Evaluation& config,
                                               const OutputSpec& outputs,
                                               int64_t num_examples) {
  std::vector<std::unique_ptr<Score>> scores;
  if (config.has_top_k()) {
    scores.push_back(
        std::make_unique<TopKAccuracy>(config.top_k(), outputs.count));
  }
  if (config.auc()) {
    scores.push_back(
        std::make_unique<AreaUnderCurve>(outputs.count, num_examples));
  }
  if (config.calibration()) scores.push_back(std::make_unique<Calibration>());
  if (config.confusion_matrix()) {
    scores.push_back(std::make_unique<ConfusionMatrix>(outputs.count));
  }
  return scores;
}

}  // namespace holdfast
