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

// Takes a worker through a job, from the declaration until it leaves:
//
//   1. The chief declares the job; every worker waits until the variables
//      exist.
//   2. The worker trains step by step (synchronous_loop.h) or ticket by ticket
//      (asynchronous_loop.h), as declared, from the current version to the
//      last. When an evaluation is due, the chief begins it, and continues to
//      train.
//   3. The worker waits until the job is DONE. If the job is rolled back, now
//      or before, the worker drops everything that is under way and starts
//      again at 1 (docs/protocol/recovery.md, G6). If the job is STOPPED, every
//      worker leaves.
//   4. The coordinator names a reporter: the chief, or another worker if the
//      chief is lost. The reporter evaluates the last version and writes
//      result.json; every worker leaves. A worker that joins after the job has
//      finished has nothing to do. Nor has the reporter if a ps dies during 4
//      and the last checkpoint
//      holds the values: then there is no result.
//
// After an error the worker leaves and reports the error, which fails the job,
// unless the error is this worker's own (IsWorkersOwn): then the worker steps
// down.
//
// Thread-compatible. Makes all its calls from the thread of Run, except for
// those of the evaluator.
class Trainer {
 public:
  struct Options {
    TaskId task;
    // The worker's index among the M workers that compute replicas: its own
    // seats are those whose number mod M equals this index.
    uint32_t replica = 0;
    // Whether this worker is the chief, which declares the job, evaluates
    // during training, and reports the result.
    bool is_chief = false;
    // What the chief declares.
    proto::Declaration declaration;
    // The job's timeouts. start_timeout: how long the cluster may take to
    // start. step_timeout: how long a step may take to close or, in
    // asynchronous jobs, how long the next push of any worker may take.
    absl::Duration start_timeout = kDefaultTimeout;
    absl::Duration step_timeout = kDefaultTimeout;
    // The job's timeout for recovery: how long a lost task may take to come
    // back.
    absl::Duration recovery_timeout = kDefaultTimeout;
    // Calls wait for this much longer than step_timeout and recovery_timeout,
    // so that the coordinator, which knows who is late, reports first.
    absl::Duration margin = absl::Seconds(30);
    // The number of parts in which a batch is computed
    // (GradientComputer::Options).
    uint32_t micro_batches = 1;
    // The timeout of the call that leaves the cluster.
    absl::Duration leave_timeout = absl::Seconds(5);
    // When the chief evaluates, and which scores to compute on the test set.
    proto::Evaluation evaluation;
    // Like Evaluator::Options::hold.
    absl::Duration pin_hold = absl::Minutes(10);
    // The fields of the result that the cluster does not know: job, ps,
    // workers, seed, cpu.
    proto::TrainingResult result;
    // The file to which the reporter writes the result as JSON. Empty: the
    // result is only logged.
    std::string result_file;
    // Called with each step when it begins, before its first batch is taken. In
    // asynchronous jobs it is called with the index of each ticket, before the
    // ticket's batch is taken.
    std::function<void(GlobalStep)> before_step;
    // The shortest time between two log lines with the training loss.
    absl::Duration log_interval = absl::Seconds(10);
  };

  // What a trainer works with. All of it must outlive the trainer.
  struct Parts {
    Cluster* cluster = nullptr;
    Model* model = nullptr;
    // Set up by step, for the worker's own seats, or by ticket, as the job
    // assigns examples.
    BatchPipeline* batches = nullptr;
    // The test set, which only the chief needs. This and evaluation_model are
    // null if nothing is evaluated.
    const ExampleSource* test_set = nullptr;
    // Reads the test set if this worker is not the chief but the reporter.
    // Returns null if the job has no test set. May be empty: the reporter then
    // evaluates nothing.
    std::function<absl::StatusOr<const ExampleSource*>()> read_test_set;
    // Like `model`, for the evaluations during training.
    Model* evaluation_model = nullptr;
    // Measures on which phases of the work the training time is spent.
    PhaseMeter* meter = nullptr;
    const Clock* clock = nullptr;
    // Where steps and waits are recorded. Null: they are not recorded.
    Tracer* tracer = nullptr;
    // Memory for the values that are pulled, from which the models' devices can
    // copy directly. Null: ordinary memory is used.
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

  // Does 1 to 3 of the list above. May return any error if the job is rolled
  // back.
  absl::Status RunGeneration();
  absl::Status Prepare();
  absl::Status Train();
  // Trains by steps or ticket by ticket.
  absl::Status RunLoop(TrainingContext* context);
  // Returns whether this worker is the reporter. Valid only if the job is DONE.
  bool IsReporter() const;
  // Does 4 of the list above, for the reporter.
  absl::Status Conclude();
  // Returns the reporter's test set; null if there is none or it cannot be
  // read.
  const ExampleSource* TestSet() const;
  absl::Status WriteResult(const End& end);
  // Returns whether a checkpoint of the last step is on disk.
  bool EndIsOnDisk() const;
  // Returns whether early stopping may end the job before its last step.
  bool MayEndEarly() const;
  // Pins and reads the newest version. Errors: INTERNAL when this is not the
  // version at which the job ended.
  absl::StatusOr<End> ReadEnd();
  void Leave(const absl::Status& status);

  absl::Time StartDeadline() const;
  absl::Time StepDeadline() const;

  const Parts parts_;
  const Options options_;
  // Null unless this worker is the chief and there is a test set.
  std::unique_ptr<Evaluator> evaluator_;
  // Whether the variables are known to exist.
  bool prepared_ = false;

  Counts counts_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_TRAINER_TRAINER_H_
