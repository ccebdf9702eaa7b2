#ifndef HOLDFAST_WORKER_TRAINER_INPUT_METER_H_
#define HOLDFAST_WORKER_TRAINER_INPUT_METER_H_

#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "proto/coordinator.pb.h"

namespace holdfast {

// What share of its training time a worker waits for batches: a greater one
// says that more, or faster, threads for input would speed it up.
//
// Thread-safe: one thread trains and another reports.
class InputMeter {
 public:
  // `clock` must outlive the meter.
  explicit InputMeter(const Clock* clock) : clock_(*clock) {}

  // Between them, the worker trains. A pair may follow another.
  void BeginTraining();
  void EndTraining();

  // Between them, within training, it waits for a batch.
  void BeginWait();
  void EndWait();

  // The share since the last report that was at least a second of training
  // before, and that of all training; a wait under way counts. Absent before
  // there was a second of training: its first moments, when nothing is made
  // ahead yet, say nothing about the rest.
  std::optional<proto::InputWait> Report();

 private:
  // Time that adds up while it runs.
  struct Stopwatch {
    absl::Duration passed;
    std::optional<absl::Time> since;

    void Start(absl::Time now) {
      if (!since.has_value()) since = now;
    }
    void Stop(absl::Time now) {
      passed = At(now);
      since.reset();
    }
    absl::Duration At(absl::Time now) const {
      return since.has_value() ? passed + (now - *since) : passed;
    }
  };

  const Clock& clock_;
  absl::Mutex mutex_;
  Stopwatch training_ ABSL_GUARDED_BY(mutex_);
  Stopwatch waiting_ ABSL_GUARDED_BY(mutex_);
  // As of the last report that counts.
  absl::Duration reported_training_ ABSL_GUARDED_BY(mutex_);
  absl::Duration reported_waiting_ ABSL_GUARDED_BY(mutex_);
  std::optional<double> recent_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_TRAINER_INPUT_METER_H_
