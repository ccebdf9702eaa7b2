// What an evaluation tells beside the sums that models make themselves: scores
// that a job asks for, each made of the outputs of all examples.
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

// What an evaluation has come to.
struct EvaluationScores {
  // For the cluster.
  proto::EvaluationResult result;
  // For result.json alone, as large as they may be.
  std::vector<proto::TrainingResult::ClassScores> by_class;
};

// Makes one score, of examples that come batch by batch in the test set's
// order.
//
// Thread-compatible.
class Score {
 public:
  virtual ~Score() = default;

  // Takes what the model made of `batch`: row-major [examples, outputs].
  // Errors: INVALID_ARGUMENT when an example is none that the score is for.
  virtual absl::Status Add(const Batch& batch,
                           absl::Span<const float> outputs) = 0;
  // Adds the score of all examples so far; to be called once, at the end.
  virtual void Tell(EvaluationScores* scores) = 0;
};

// Share of the examples whose class is among the k that the model ranks first,
// the lower of two classes before the other where their outputs are equal.
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
// the share of the pairs of an example of each in which that of class 1 has the
// greater output, pairs of equals counted half (Hanley and McNeil 1982: the
// Mann-Whitney statistic). Of two outputs it is the second minus the first that
// counts, which orders examples as softmax does.
//
// Exact, for 4 bytes per example. Tells nothing where one class has no example,
// or an output is not a number.
class AreaUnderCurve final : public Score {
 public:
  AreaUnderCurve(int64_t num_outputs, int64_t num_examples)
      : num_outputs_(num_outputs), values_(num_examples) {}

  absl::Status Add(const Batch& batch,
                   absl::Span<const float> outputs) override;
  void Tell(EvaluationScores* scores) override;

 private:
  const int64_t num_outputs_;
  // Those of class 1 from the front, those of class 0 from the end.
  std::vector<float> values_;
  int64_t positives_ = 0;
  int64_t negatives_ = 0;
  bool has_nan_ = false;
};

// The sum of the predicted probabilities of class 1, the sigmoids of a single
// output, over the number of examples of class 1: 1 where they are as many as
// they are predicted to be.
//
// Tells nothing where there is no such example, or an output is not a number.
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

// How many examples of each class were predicted to be of each, and what
// follows from that for each class.
class ConfusionMatrix final : public Score {
 public:
  // Of the result, which has the square of it in numbers.
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

// Tests whether what `config` asks for can be told of a model with these
// outputs and of such examples. Errors: INVALID_ARGUMENT with the field's name.
absl::Status CheckScores(const proto::Evaluation& config,
                         const OutputSpec& outputs,
                         const ExampleSpec& examples);

// The scores that `config` asks for, which CheckScores has found well.
std::vector<std::unique_ptr<Score>> MakeScores(const proto::Evaluation& config,
                                               const OutputSpec& outputs,
                                               int64_t num_examples);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_TRAINER_SCORES_H_
