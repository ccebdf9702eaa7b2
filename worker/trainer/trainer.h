// SPDX-License-Identifier: Apache-2.0
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
#include "client/phase_meter.h"
#include "common/base/clock.h"
#include "common/data/example_source.h"
#include "common/job/ids.h"
#include "common/job/task_id.h"
#include "common/process/host_memory.h"
#include "common/rpc/timeouts.h"
#include "common/trace/trace.h"
#include "proto/cluster.pb.h"
#include "proto/job.pb.h"
#include "proto/result.pb.h"
#include "worker/input/batch_pipeline.h"
#include "worker/model/model.h"
#include "worker/trainer/evaluator.h"
#include "worker/trainer/training_context.h"

namespace holdfast {

// One worker's way through a job, from the declaration to the leave:
//
//   1. The chief declares the variables; everyone waits until they exist.
//   2. Trains, by steps (synchronous_loop.h) or ticket by ticket
//      (asynchronous_loop.h), as declared, from the current version to the
//      last. When an evaluation is due, the chief begins it, and continues to
//      train.
//   3. Waits until the job is DONE. When it is rolled back, here or before,
//      drops everything that is under way and starts again at 1
//      (docs/protocol/recovery.md, G6). When the job is STOPPED, everyone
//      leaves.
//   4. The reporter that the coordinator names, the chief as long as it is
//      alive, evaluates the last version and writes result.json; everyone
//      leaves. A worker that joins after the job was finished has nothing to
//      do; nor has a chief if a ps dies in this step, whose values are in the
//      last checkpoint.
//
// An error ends in a leave that reports it, which fails the job, unless the
// error is this worker's own (IsWorkersOwn): then the worker steps down.
//
// Thread-compatible; all calls are made from the thread of Run, except the
// evaluator's.
class Trainer {
 public:
  struct Options {
    TaskId task;
    // The worker's index among the M replicas: its own seats are those i with i
    // mod M equal to it.
    uint32_t replica = 0;
    // The chief declares, evaluates during training, and reports.
    bool is_chief = false;
    // What the chief declares.
    proto::Declaration declaration;
    // As in the job: how long the cluster may take to start; and how long until
    // a step closes or, in asynchronous jobs, until the next push of any
    // worker.
    absl::Duration start_timeout = kDefaultTimeout;
    absl::Duration step_timeout = kDefaultTimeout;
    // Likewise, how long a lost task may take to come back.
    absl::Duration recovery_timeout = kDefaultTimeout;
    // Calls wait for this much longer than step_timeout and recovery_timeout,
    // so that the coordinator, which knows who is late, reports first.
    absl::Duration margin = absl::Seconds(30);
    // The number of parts in which a batch is computed
    // (GradientComputer::Options).
    uint32_t micro_batches = 1;
    // For the call that leaves the cluster.
    absl::Duration leave_timeout = absl::Seconds(5);
    // When the chief evaluates, and the scores on the test set.
    proto::Evaluation evaluation;
    // Like Evaluator::Options::hold.
    absl::Duration pin_hold = absl::Minutes(10);
    // The part of the result that the cluster does not know: job, ps, workers,
    // seed, cpu.
    proto::TrainingResult result;
    // Where the reporter writes the result as JSON. Empty: only the log gets
    // it.
    std::string result_file;
    // Called with the step when it begins, before its first batch is taken; in
    // asynchronous jobs with the index of a ticket, before its batch is taken.
    std::function<void(GlobalStep)> before_step;
    // The training loss is logged at most this often.
    absl::Duration log_interval = absl::Seconds(10);
  };

  // What a trainer works with. All must outlive it.
  struct Parts {
    Cluster* cluster = nullptr;
    Model* model = nullptr;
    // Made by step, for the worker's own seats, or by ticket, as the job
    // assigns examples.
    BatchPipeline* batches = nullptr;
    // This and evaluation_model are null if nothing is evaluated. Needed by the
    // chief alone.
    const ExampleSource* test_set = nullptr;
    // Reads the test set, for a reporter that is not the chief; returns null if
    // the job has none. May be empty.
    std::function<absl::StatusOr<const ExampleSource*>()> read_test_set;
    // Like `model`, for the evaluations during training.
    Model* evaluation_model = nullptr;
    // Measures what the training time is spent on.
    PhaseMeter* meter = nullptr;
    const Clock* clock = nullptr;
    // Where steps and waits are recorded; null: nowhere.
    Tracer* tracer = nullptr;
    // Memory for the values that are pulled: the models' devices copy directly
    // from it. Null: any memory.
    HostMemory* host_memory = nullptr;
  };

  using Counts = TrainingContext::Counts;

  Trainer(const Parts& parts, const Options& options);

  // Trains to the end and leaves. Must be called once.
  // Errors: ABORTED with the job's reason when it has failed, or when this
  // worker was fenced; those of Cluster, Model, BatchPipeline and Evaluator;
  // those of writing the result file.
  absl::Status Run();

  const Counts& counts() const { return counts_; }

 private:
  // The last version, pinned so that rows can be read.
  struct End {
    std::unique_ptr<Cluster::Pin> pin;
    Parameters values;
  };

  // Steps 1 to 3. May return any error when the job is rolled back.
  absl::Status RunGeneration();
  absl::Status Prepare();
  absl::Status Train();
  // Trains by steps or ticket by ticket.
  absl::Status RunLoop(TrainingContext* context);
  // Valid once the job is DONE.
  bool IsReporter() const;
  // Step 4, for the reporter.
  absl::Status Conclude();
  // The reporter's test set; null if there is none.
  const ExampleSource* TestSet() const;
  absl::Status WriteResult(const End& end);
  // Whether a checkpoint of the last step is on disk.
  bool EndIsOnDisk() const;
  // Whether early stopping may end the job before its last step.
  bool MayEndEarly() const;
  // Reads the last version. Errors: INTERNAL when it is not the version at
  // which the job ended.
  absl::StatusOr<End> ReadEnd();
  void Leave(const absl::Status& status);

  absl::Time StartDeadline() const;
  absl::Time StepDeadline() const;

  const Parts parts_;
  const Options options_;
  // The chief's, if there is a test set.
  std::unique_ptr<Evaluator> evaluator_;
  // Whether the variables are known to exist.
  bool prepared_ = false;

  Counts counts_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_TRAINER_TRAINER_H_
