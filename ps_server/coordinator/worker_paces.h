// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_COORDINATOR_WORKER_PACES_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_WORKER_PACES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/job/ids.h"
#include "proto/coordinator.pb.h"

namespace holdfast {

// How fast each worker is, judged by when its pushes arrive, and which workers
// are slow (WorkerPace in proto/coordinator.proto). Workers are identified by
// their replica indices.
//
// A worker's time for a push runs from the later of two moments: when the step
// on whose parameters the push was computed was opened, or the push's ticket
// granted; and when the worker was done with its previous push. So time spent
// waiting for others does not count. Nor does the first push in a life or a
// generation, which includes loading data and pulling everything.
//
// Thread-compatible. Recording a push costs a few nanoseconds, however many
// workers there are; medians are computed only by Judge.
class WorkerPaces {
 public:
  // The number of pushes in a worker's mean, and of steps in `last_share`.
  static constexpr size_t kPushes = 20;
  static constexpr size_t kSteps = 100;
  // A worker with fewer pushes is not compared with others.
  static constexpr size_t kLeastPushes = 3;
  // In multiples of the median. A worker becomes slow when its mean has been
  // above kSlow for kSure judgments in a row, since a delay of all workers
  // reaches their means one after another. It stops being slow when its mean
  // has been below kNotSlow for kCalm judgments.
  static constexpr double kSlow = 2;
  static constexpr double kNotSlow = 1.5;
  static constexpr int kSure = 2;
  static constexpr int kCalm = 5;
  // A mean must also exceed the median by this much; a smaller difference is
  // noise.
  static constexpr absl::Duration kLeastExcess = absl::Milliseconds(1);
  // An owed push is overdue after this many medians, but no sooner than
  // kLeastOverdue.
  static constexpr double kOverdue = 10;
  static constexpr absl::Duration kLeastOverdue = absl::Seconds(2);

  // Called when a worker begins a life.
  void OnJoined(uint32_t replica, absl::Time now);
  // Called when a generation is over. Forgets which workers were slow, without
  // reporting that they no longer are.
  void Reset(absl::Time now);

  // Synchronous jobs: called when a step is open.
  void OnStepOpened(GlobalStep step, absl::Time now);
  // Called once for each push that is offered to `step`. `counts` says whether
  // the push fills a seat.
  void OnOffer(uint32_t replica, GlobalStep step, bool counts, absl::Time now);
  // Called when the open step is closed with the offers that it has.
  void OnStepClosed();
  // Asynchronous jobs: called when a push has spent its ticket, which was
  // granted at `granted`.
  void OnSpent(uint32_t replica, absl::Time granted, absl::Time now);

  // What the coordinator knows of a live worker when it is judged.
  struct Sight {
    uint32_t replica = 0;
    // Whether the job waits for a push of this worker.
    bool owes = false;
    // Asynchronous jobs: when the oldest ticket that the worker holds was
    // granted.
    absl::Time granted = absl::InfinitePast();
    // How long the worker has been silent. Absent if this is normal between two
    // renewals of a lease.
    std::optional<absl::Duration> silent;
  };
  struct Change {
    uint32_t replica = 0;
    bool slow = false;
    // Why, like "1.2s per push, where the median is 100ms".
    std::string text;
  };
  // Judges which of the live workers are slow. `live` must have all of them, in
  // any order; other workers do not count as slow. Returns the workers that
  // have become slow, or have stopped being slow.
  std::vector<Change> Judge(const std::vector<Sight>& live, absl::Time now);

  void AddTo(uint32_t replica, proto::WorkerPace* pace) const;

 private:
  struct Worker {
    // A ring of the times, in seconds, that the latest pushes took.
    std::array<float, kPushes> seconds = {};
    uint8_t num_pushes = 0;
    uint8_t next = 0;
    bool fresh = true;
    bool slow = false;
    // The number of consecutive judgments with the mean above kSlow. calm: the
    // number of consecutive judgments with no sign of slowness.
    int above = 0;
    int calm = 0;
    // The number of steps in `last_` that this worker completed.
    uint32_t times_last = 0;
    // When the worker's last push was offered or spent its ticket, or when its
    // life began if it has made none. step: the step of that push, in
    // synchronous jobs.
    absl::Time done_at;
    std::optional<GlobalStep> step;
  };
  // The number of steps whose opening times are kept.
  static constexpr size_t kOpenings = 1024;

  Worker& At(uint32_t replica);
  static void AddPush(absl::Duration time, Worker* worker);
  static double Mean(const Worker& worker);
  absl::Time OpenedAt(GlobalStep step) const;
  // Since when the worker has owed its push.
  absl::Time OwesSince(const Worker& worker, const Sight& sight) const;

  // Indexed by replica.
  std::vector<Worker> workers_;
  // When each step was opened: a ring, indexed by the step number modulo its
  // size. It holds the steps from first_open_ to open_, or the last kOpenings
  // of them.
  std::vector<absl::Time> openings_;
  std::optional<GlobalStep> first_open_;
  GlobalStep open_;
  // A ring of the replicas whose pushes completed the latest steps.
  std::vector<uint32_t> last_;
  size_t next_last_ = 0;
  std::optional<uint32_t> last_offer_;
  // The last time at which every live worker owed an overdue push. No single
  // worker was to blame for that, so lateness before this time is not held
  // against a worker.
  absl::Time all_overdue_at_ = absl::InfinitePast();
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_WORKER_PACES_H_
