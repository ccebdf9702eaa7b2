// SPDX-License-Identifier: Apache-2.0

// What an evaluation reports besides the sums that models compute themselves:
// the scores that a job asks for, each computed from the outputs of all
// examples.
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

// Computes one score from examples that come batch by batch in the test set's
// order.
//
// Thread-compatible.
class Score {
 public:
  virtual ~Score() = default;

  // Takes the model's outputs for `batch`: row-major [examples, outputs].
  // Errors: INVALID_ARGUMENT when the score is not defined for an example.
  virtual absl::Status Add(const Batch& batch,
                           absl::Span<const float> outputs) = 0;
  // Adds the score of all examples to `scores`. Must be called once, at the
  // end.
  virtual void Tell(EvaluationScores* scores) = 0;
};

// The share of the examples whose class is among the k that the model ranks
// first. Of classes with equal outputs, lower ones rank first.
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

// Area under the receiver operating characteristic of class 1 against class 0:
// the share of the pairs of an example of each class in which the one of class
// 1 has the greater output, where pairs with equal outputs count half (Hanley
// and McNeil 1982: the Mann-Whitney statistic). With two outputs, the second
// minus the first counts, which orders examples as softmax does.
//
// Exact; takes 4 bytes per example. Not reported if one class has no examples,
// or an output is NaN.
class AreaUnderCurve final : public Score {
 public:
  AreaUnderCurve(int64_t num_outputs, int64_t num_examples)
      : num_outputs_(num_outputs), values_(num_examples) {}

  absl::Status Add(const Batch& batch,
                   absl::Span<const float> outputs) override;
  void Tell(EvaluationScores* scores) override;

 private:
  const int64_t num_outputs_;
  // The outputs of class 1 from the front, those of class 0 from the end.
  std::vector<float> values_;
  int64_t positives_ = 0;
  int64_t negatives_ = 0;
  bool has_nan_ = false;
};

// The sum of the predicted probabilities of class 1, the sigmoids of a single
// output, divided by the number of examples of class 1: 1 if there are as many
// as predicted.
//
// Not reported if there are no examples of class 1, or an output is NaN.
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
// of each class that follow.
class ConfusionMatrix final : public Score {
 public:
  // The limit for the matrix in the result, which has the square of it in
  // numbers.
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
// these outputs and for such examples. Errors: INVALID_ARGUMENT, with the
// field's name.
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
