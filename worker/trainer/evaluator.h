// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_TRAINER_EVALUATOR_H_
#define HOLDFAST_WORKER_TRAINER_EVALUATOR_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/cluster.h"
#include "common/base/clock.h"
#include "common/base/strand.h"
#include "common/data/example_source.h"
#include "common/process/host_memory.h"
#include "proto/coordinator.pb.h"
#include "proto/job.pb.h"
#include "worker/model/model.h"
#include "worker/trainer/batch_rows.h"
#include "worker/trainer/scores.h"

namespace holdfast {

// Evaluates `model` at `parameters` on every example of `test_set`, in batches
// of the size in `config`, 1000 by default, and computes the scores that
// `config` asks for (CheckScores). `read_rows` reads rows of embedding tables,
// and may be empty if the model has no tables. Errors: those of the model, of
// the sources and of the scores; CANCELLED as soon as `*cancelled` is true;
// `cancelled` may be null.
absl::StatusOr<EvaluationScores> EvaluateOn(const ExampleSource& test_set,
                                            const proto::Evaluation& config,
                                            const Parameters& parameters,
                                            const RowSource& read_rows,
                                            Model* model,
                                            const std::atomic<bool>* cancelled);

// Returns a text for the log: the step, the loss, and the other scores in
// `result`.
std::string DescribeEvaluation(const proto::EvaluationResult& result);

// Evaluates versions of the parameters during training, on its own thread, with
// its own model, one version at a time. A version is pinned, read, and
// evaluated on the test set; the result goes to the cluster and to the log.
//
// Start, Finish and Drop must be called by one thread.
class Evaluator {
 public:
  struct Options {
    // The scores to compute, and the batch size.
    proto::Evaluation config;
    // The timeout of each call to the cluster: pin, read, report.
    absl::Duration call_timeout = absl::Seconds(330);
    // How long the cluster keeps a pinned version that is not released; at most
    // an hour. Until then the pin may cost the ps tasks memory for a copy of
    // the parameters.
    absl::Duration hold = absl::Minutes(10);
    // As in Trainer::Parts.
    HostMemory* host_memory = nullptr;
  };

  // The arguments must outlive the evaluator; nothing else may use `model`.
  Evaluator(Cluster* cluster, Model* model, const ExampleSource* test_set,
            const Clock* clock, const Options& options);
  // Abandons the evaluation under way.
  ~Evaluator();

  Evaluator(const Evaluator&) = delete;
  Evaluator& operator=(const Evaluator&) = delete;

  // Waits for the previous evaluation, then pins the newest version and begins
  // to evaluate it. Errors: those of Finish; those of Cluster::PinVersion.
  absl::Status Start(absl::Time deadline);

  // Waits for the evaluation under way, if there is one, and returns its
  // status. Errors: DEADLINE_EXCEEDED when it has not ended by `deadline`;
  // those of the evaluation, each of which is returned once.
  absl::Status Finish(absl::Time deadline);

  // Abandons the evaluation under way, and its result, because the evaluated
  // version was rolled back. Waits for the current forward pass; calls to the
  // cluster need not be abandoned, because they fail by themselves after a
  // roll-back.
  void Drop();

 private:
  absl::Status Evaluate(Cluster::Pin& pin);

  Cluster* const cluster_;
  Model* const model_;
  const ExampleSource* const test_set_;
  const Clock* const clock_;
  const Options options_;
  std::atomic<bool> cancelled_ = false;
  // Used by the strand alone. Kept to reuse the memory.
  Parameters parameters_;

  absl::Mutex mutex_;
  bool idle_ ABSL_GUARDED_BY(mutex_) = true;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);

  Strand strand_;  // last, so that it stops first
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_TRAINER_EVALUATOR_H_
