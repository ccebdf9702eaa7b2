// SPDX-License-Identifier: Apache-2.0

// The scores that a job asks for, each of which is computed from a model's
// outputs for all examples. An evaluation reports them besides the sums that
// the model itself computes.
#ifndef HOLDFAST_WORKER_TRAINER_SCORES_H_
#define HOLDFAST_WORKER_TRAINER_SCORES_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/data/example_source.h"
#include "proto/coordinator.pb.h"
#include "proto/job.pb.h"
#include "proto/result.pb.h"
#include "worker/input/batch.h"
#include "worker/model/model.h"

namespace holdfast {

// The results of an evaluation.
struct EvaluationScores {
  // Reported to the cluster.
  proto::EvaluationResult result;
  // Written to result.json alone, since they may be large.
  std::vector<proto::TrainingResult::ClassScores> by_class;
};

// Computes one score from examples that are added batch by batch, in the test
// set's order.
//
// Thread-compatible.
class Score {
 public:
  virtual ~Score() = default;

  // Adds the examples of `batch`. `outputs` are the model's outputs for them,
  // row-major: [examples, outputs]. Errors: INVALID_ARGUMENT when the score is
  // not defined for an example.
  virtual absl::Status Add(const Batch& batch,
                           absl::Span<const float> outputs) = 0;
  // Writes the score of all examples that were added to `scores`. Must be
  // called once, at the end.
  virtual void Tell(EvaluationScores* scores) = 0;
};

// The fraction of the examples whose class is among the k classes with the
// greatest outputs. If two classes have equal outputs, the lower class ranks
// first.
class TopKAccuracy final : public Score {
 public:
  TopKAccuracy(int64_t k, int64_t num_outputs)
      : k_(k), num_outputs_(num_outputs) {}

  absl::Status Add(const Batch& batch,
                   absl::Span<const float> outputs) override;
  void Tell(EvaluationScores* scores) override;

 private:
  const int64_t k_;
  const int64_t num_outputs_;
  int64_t examples_ = 0;
  int64_t right_ = 0;
};

// The area under the receiver operating characteristic of class 1 against class
// 0. It is computed as the Mann-Whitney statistic (Hanley and McNeil 1982): of
// all pairs of one example of each class, the fraction in which the example of
// class 1 has the greater output, where a pair with equal outputs counts half.
// If the model has two outputs, the second minus the first is taken as the
// output, which orders examples as softmax does.
//
// The score is exact, and takes 4 bytes of memory per example. It is not
// reported if one class has no examples, or an output is NaN.
class AreaUnderCurve final : public Score {
 public:
  AreaUnderCurve(int64_t num_outputs, int64_t num_examples)
      : num_outputs_(num_outputs), values_(num_examples) {}

  absl::Status Add(const Batch& batch,
                   absl::Span<const float> outputs) override;
  void Tell(EvaluationScores* scores) override;

 private:
  const int64_t num_outputs_;
  // The outputs for examples of class 1, from the front on, and for examples of
  // class 0, from the end backwards.
  std::vector<float> values_;
  int64_t positives_ = 0;
  int64_t negatives_ = 0;
  bool has_nan_ = false;
};

// The sum of the predicted probabilities of class 1 (the sigmoid of the single
// output) over all examples, divided by the number of examples of class 1. It
// is 1 if there are as many such examples as predicted.
//
// The score is not reported if there are no examples of class 1, or an output
// is NaN.
class Calibration final : public Score {
 public:
  absl::Status Add(const Batch& batch,
                   absl::Span<const float> outputs) override;
  void Tell(EvaluationScores* scores) override;

 private:
  double predicted_ = 0;
  int64_t examples_ = 0;
  int64_t positives_ = 0;
};

// How many examples of each class were predicted as each class, and the scores
// of each class that follow from these numbers.
class ConfusionMatrix final : public Score {
 public:
  // The matrix is written to the result only if there are at most so many
  // classes, because it has the square of their number in entries.
  static constexpr int64_t kMaxClasses = 100;

  explicit ConfusionMatrix(int64_t num_outputs);

  absl::Status Add(const Batch& batch,
                   absl::Span<const float> outputs) override;
  void Tell(EvaluationScores* scores) override;

 private:
  const int64_t num_outputs_;
  const int64_t num_classes_;
  // [class, predicted class].
  std::vector<int64_t> counts_;
};

// Checks that the scores that `config` asks for are defined for a model with
// these outputs and for examples like `examples`. Errors: INVALID_ARGUMENT,
// with the name of the field of `config`.
absl::Status CheckScores(const proto::Evaluation& config,
                         const OutputSpec& outputs,
                         const ExampleSpec& examples);

// Creates the scores that `config` asks for, which CheckScores must have
// accepted.
std::vector<std::unique_ptr<Score>> MakeScores(const proto::Evaluation& config,
                                               const OutputSpec& outputs,
                                               int64_t num_examples);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_TRAINER_SCORES_H_
