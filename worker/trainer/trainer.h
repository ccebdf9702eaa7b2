#ifndef HOLDFAST_WORKER_TRAINER_TRAINER_H_
#define HOLDFAST_WORKER_TRAINER_TRAINER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cluster.h"
#include "common/clock.h"
#include "common/ids.h"
#include "proto/cluster.pb.h"
#include "proto/result.pb.h"
#include "worker/input/batch_pipeline.h"
#include "worker/input/example_source.h"
#include "worker/model/model.h"
#include "worker/trainer/evaluator.h"

namespace holdfast {

// One worker's way through a synchronous job, from the declaration to the leave
// (docs/life_of_a_step.md):
//
//   1. The chief declares the variables; everyone waits until they exist, and
//      pulls version 0.
//   2. At version t, for each of the worker's seats: take the batch of
//      (t, seat), compute the gradients, of which each leaves as soon as it is
//      ready, and offer the push to the step. What is not finite is not
//      offered: the seat is filled with weight 0.
//   3. The pull of t + 1 is under way before the verdicts of t are waited for.
//      A late backup worker learns that it is STALE and goes on with the newest
//      version.
//   4. When a version is due, the chief begins to evaluate it, and trains on.
//   5. At version total_steps the chief evaluates once more, writes
//   result.json,
//      and everyone leaves.
//
// Whatever goes wrong ends in a leave that says so, and with it the job.
//
// Thread-compatible; all calls are made from the thread of Run, but for those
// of the evaluator.
class Trainer {
 public:
  struct Options {
    // The worker's place among the M replicas: seats i with i mod M equal to it
    // are its own.
    uint32_t replica = 0;
    // The chief declares, evaluates, and writes the result.
    bool is_chief = false;
    // What the chief declares.
    proto::Declaration declaration;
    // As in the job: how long the cluster may take to start, and a step to
    // close.
    absl::Duration start_timeout = absl::Seconds(300);
    absl::Duration step_timeout = absl::Seconds(300);
    // Calls wait for that much longer, so that the coordinator, which knows who
    // is late, speaks first.
    absl::Duration margin = absl::Seconds(30);
    // For the last word to the cluster.
    absl::Duration leave_timeout = absl::Seconds(5);
    // The chief evaluates at every multiple of it. 0: only at the end.
    uint64_t evaluate_every_steps = 0;
    // Examples in one forward pass of an evaluation.
    int64_t evaluation_batch_size = 1000;
    // As Evaluator::Options::hold.
    absl::Duration pin_hold = absl::Minutes(10);
    // The part of the result that the cluster does not know: job, ps, workers,
    // consistency.mode, seed, cpu.
    proto::TrainingResult result;
    // Where the chief writes the result as JSON. Empty: nowhere.
    std::string result_file;
    // For tests; called when a step begins, before its first batch is taken.
    std::function<void(GlobalStep)> before_step;
    // A line in the log about the training loss at most this often.
    absl::Duration log_interval = absl::Seconds(10);
  };

  // What a trainer works with. All must outlive it.
  struct Parts {
    Cluster* cluster = nullptr;
    Model* model = nullptr;
    // Of the worker's own seats.
    BatchPipeline* batches = nullptr;
    // Both null where nothing is evaluated. Needed by the chief alone.
    const ExampleSource* test_set = nullptr;
    // Like `model`, for the evaluations during training.
    Model* evaluation_model = nullptr;
    const Clock* clock = nullptr;
  };

  // What the worker's own seats came to.
  struct Counts {
    uint64_t accepted = 0;
    uint64_t stale = 0;
    uint64_t duplicate = 0;
    // Contributions of weight 0: loss or gradient was not a finite number.
    uint64_t not_finite = 0;
  };

  Trainer(const Parts& parts, const Options& options);

  // Trains to the end and leaves. To be called once.
  // Errors: ABORTED with the job's reason when it has failed; those of Cluster,
  // Model, BatchPipeline and Evaluator; of the result file.
  absl::Status Run();

  const Counts& counts() const { return counts_; }

 private:
  absl::Status Train();
  absl::Status Prepare();
  absl::Status TrainStep();
  // Computes, pushes and offers what belongs to the seat.
  absl::StatusOr<std::unique_ptr<Cluster::Offer>> FillSeat(uint32_t seat);
  absl::Status CountVerdict(proto::Verdict verdict, uint32_t seat);
  absl::Status EvaluateWhenDue();
  absl::Status Conclude();
  void Leave(const absl::Status& status);
  void LogProgress(double loss);

  absl::Time StartDeadline() const;
  absl::Time StepDeadline() const;

  const Parts parts_;
  const Options options_;
  // The chief's, where there is a test set.
  std::unique_ptr<Evaluator> evaluator_;

  // Known once the variables exist.
  std::vector<uint32_t> seats_;
  GlobalStep total_steps_;

  Parameters now_;
  Parameters next_;
  Counts counts_;
  uint64_t last_evaluated_ = 0;
  absl::Time last_log_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_TRAINER_TRAINER_H_
