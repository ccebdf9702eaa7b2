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

// How fast each worker is, by when its pushes come, and who is slow
// (WorkerPace in proto/coordinator.proto). Workers are known by their replica
// indices.
//
// A worker's time for a push runs from the later of two moments: when the step
// was open, or the ticket granted, on whose parameters the push was computed;
// and when the worker was done with its push before. So what it waits for
// others does not count. The first push in a life or a generation does not
// either: it comes with loading data and pulling everything.
//
// Thread-compatible. To note a push costs a few nanoseconds, however many
// workers there are; medians are computed by Judge alone.
class WorkerPaces {
 public:
  // Pushes that a mean is of, and steps that `last_share` is of.
  static constexpr size_t kPushes = 20;
  static constexpr size_t kSteps = 100;
  // A worker with fewer pushes is not compared with others.
  static constexpr size_t kLeastPushes = 3;
  // A worker is slow when it has been above the first for kSure judgements in a
  // row, for what holds up everybody reaches the means one after the other; and
  // not any more when it has been below the second for kCalm.
  static constexpr double kSlow = 2;
  static constexpr double kNotSlow = 1.5;
  static constexpr int kSure = 2;
  static constexpr int kCalm = 5;
  // Beyond a factor: a difference of less is noise.
  static constexpr absl::Duration kLeastExcess = absl::Milliseconds(1);
  // Medians after which a push that is owed is overdue, but at least so long.
  static constexpr double kOverdue = 10;
  static constexpr absl::Duration kLeastOverdue = absl::Seconds(2);

  // A worker begins a life.
  void OnJoined(uint32_t replica, absl::Time now);
  // A generation is over. Whoever was slow is not any more, without a word.
  void Reset(absl::Time now);

  // Synchronous: a step is open.
  void OnStepOpened(GlobalStep step, absl::Time now);
  // A push of `step` was offered, whether or not it counts; each push once.
  void OnOffer(uint32_t replica, GlobalStep step, bool counts, absl::Time now);
  // The open step is made of the offers that it has.
  void OnStepClosed();
  // Asynchronous: the ticket of a push is spent, which was granted at a time.
  void OnSpent(uint32_t replica, absl::Time granted, absl::Time now);

  // A live worker, as the coordinator sees it.
  struct Sight {
    uint32_t replica = 0;
    // It is its turn to push.
    bool owes = false;
    // Asynchronous: when its oldest ticket was granted.
    absl::Time granted = absl::InfinitePast();
    // Longer than is normal between two renewals of its lease, if so.
    std::optional<absl::Duration> silent;
  };
  struct Change {
    uint32_t replica = 0;
    bool slow = false;
    // Why, as "1.2s per push, where the median is 100ms".
    std::string text;
  };
  // Judges all live workers, in any order; who is not among them is not slow.
  // Returns who has become slow, or is not any more.
  std::vector<Change> Judge(const std::vector<Sight>& live, absl::Time now);

  void AddTo(uint32_t replica, proto::WorkerPace* pace) const;

 private:
  struct Worker {
    // A ring of the latest, in seconds.
    std::array<float, kPushes> seconds = {};
    uint8_t num_pushes = 0;
    uint8_t next = 0;
    bool fresh = true;
    bool slow = false;
    // Judgements in a row that it was above kSlow by, and not slow by.
    int above = 0;
    int calm = 0;
    // Of the steps in `last_`.
    uint32_t times_last = 0;
    // When its last push was offered or spent, or its life began; of which
    // step.
    absl::Time done_at;
    std::optional<GlobalStep> step;
  };
  // Steps whose opening is remembered.
  static constexpr size_t kOpenings = 1024;

  Worker& At(uint32_t replica);
  static void AddPush(absl::Duration time, Worker* worker);
  static double Mean(const Worker& worker);
  absl::Time OpenedAt(GlobalStep step) const;
  // Since when it owes its push.
  absl::Time OwesSince(const Worker& worker, const Sight& sight) const;

  // By replica.
  std::vector<Worker> workers_;
  // By step number, a ring. Those from first_open_ to open_ count, as far as
  // the ring goes back.
  std::vector<absl::Time> openings_;
  std::optional<GlobalStep> first_open_;
  GlobalStep open_;
  // Who made the latest steps complete, a ring.
  std::vector<uint32_t> last_;
  size_t next_last_ = 0;
  std::optional<uint32_t> last_offer_;
  // When everybody that lives owed a push for too long: then nobody is to
  // blame, and no time before counts.
  absl::Time all_overdue_at_ = absl::InfinitePast();
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_WORKER_PACES_H_
