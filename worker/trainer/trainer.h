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
//      (asynchronous_loop.h), as was declared, from the version that there is
//      to the last. When a version is due, the chief begins to evaluate it, and
//      trains on.
//   3. Waits until the job is DONE. When it is rolled back, here or before,
//      whatever is under way is dropped, and it begins again at 1
//      (docs/protocol/recovery.md, G6). When the job is STOPPED, everyone
//      leaves.
//   4. The reporter that the coordinator names, the chief as long as it lives,
//      evaluates the last version and writes result.json; everyone leaves. One
//      that comes when the job was finished before has nothing to do; nor has a
//      chief when a ps dies now, whose values the last checkpoint holds.
//
// What goes wrong ends in a leave that says so, and with it the job, unless it
// is this worker's own (IsWorkersOwn): then it steps down.
//
// Thread-compatible; all calls are made from the thread of Run, but for those
// of the evaluator.
class Trainer {
 public:
  struct Options {
    TaskId task;
    // The worker's place among the M replicas: seats i with i mod M equal to it
    // are its own.
    uint32_t replica = 0;
    // The chief declares, evaluates during training, and reports.
    bool is_chief = false;
    // What the chief declares.
    proto::Declaration declaration;
    // As in the job: how long the cluster may take to start, and a step to
    // close, or, asynchronous, the next push of anybody.
    absl::Duration start_timeout = kDefaultTimeout;
    absl::Duration step_timeout = kDefaultTimeout;
    // The same, for a lost task to come back.
    absl::Duration recovery_timeout = kDefaultTimeout;
    // Calls wait for recovery_timeout and that much longer, so that the
    // coordinator, which knows who is late, speaks first.
    absl::Duration margin = absl::Seconds(30);
    // Parts that a batch is computed in (GradientComputer::Options).
    uint32_t micro_batches = 1;
    // For the last word to the cluster.
    absl::Duration leave_timeout = absl::Seconds(5);
    // When the chief evaluates, and what is told of the test set.
    proto::Evaluation evaluation;
    // As Evaluator::Options::hold.
    absl::Duration pin_hold = absl::Minutes(10);
    // The part of the result that the cluster does not know: job, ps, workers,
    // seed, cpu.
    proto::TrainingResult result;
    // Where the reporter writes the result as JSON. Empty: in the log alone.
    std::string result_file;
    // For tests; called with the step when it begins, before its first batch is
    // taken; asynchronous: with the index of a ticket, before its batch is
    // taken.
    std::function<void(GlobalStep)> before_step;
    // A line in the log about the training loss at most this often.
    absl::Duration log_interval = absl::Seconds(10);
  };

  // What a trainer works with. All must outlive it.
  struct Parts {
    Cluster* cluster = nullptr;
    Model* model = nullptr;
    // Of the worker's own seats, or by ticket, as the job's examples are.
    BatchPipeline* batches = nullptr;
    // Both null where nothing is evaluated. Needed by the chief alone.
    const ExampleSource* test_set = nullptr;
    // Reads the test set of a reporter that is not the chief; returns null
    // where the job has none. May be empty.
    std::function<absl::StatusOr<const ExampleSource*>()> read_test_set;
    // Like `model`, for the evaluations during training.
    Model* evaluation_model = nullptr;
    // Told of what training time goes into.
    PhaseMeter* meter = nullptr;
    const Clock* clock = nullptr;
    // Where steps and waits are recorded; null: nowhere.
    Tracer* tracer = nullptr;
    // Where the values that are computed on are pulled to: the models' devices
    // copy from there. Null: anywhere.
    HostMemory* host_memory = nullptr;
  };

  using Counts = TrainingContext::Counts;

  Trainer(const Parts& parts, const Options& options);

  // Trains to the end and leaves. To be called once.
  // Errors: ABORTED with the job's reason when it has failed, or when this
  // worker was shut out; those of Cluster, Model, BatchPipeline and Evaluator;
  // of the result file.
  absl::Status Run();

  const Counts& counts() const { return counts_; }

 private:
  // The last version, held so that rows can be read.
  struct End {
    std::unique_ptr<Cluster::Pin> pin;
    Parameters values;
  };

  // 1 to 3. Errors: when the job is rolled back, any.
  absl::Status RunGeneration();
  absl::Status Prepare();
  absl::Status Train();
  // By steps or ticket by ticket.
  absl::Status RunLoop(TrainingContext* context);
  // Once the job is DONE.
  bool IsReporter() const;
  // 4, of the reporter.
  absl::Status Conclude();
  // The reporter's; null where there is none.
  const ExampleSource* TestSet() const;
  absl::Status WriteResult(const End& end);
  // Whether a checkpoint of the last step is on disk.
  bool EndIsOnDisk() const;
  // Before its last step, by early stopping.
  bool MayEndEarly() const;
  // Reads the last version. Errors: INTERNAL when it is not what a job that is
  // done has come to.
  absl::StatusOr<End> ReadEnd();
  void Leave(const absl::Status& status);

  absl::Time StartDeadline() const;
  absl::Time StepDeadline() const;

  const Parts parts_;
  const Options options_;
  // The chief's, where there is a test set.
  std::unique_ptr<Evaluator> evaluator_;
  // The variables exist, as far as is known.
  bool prepared_ = false;

  Counts counts_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_TRAINER_TRAINER_H_
