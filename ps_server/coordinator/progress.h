#ifndef HOLDFAST_PS_SERVER_COORDINATOR_PROGRESS_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_PROGRESS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "common/task_id.h"
#include "proto/checkpoint.pb.h"
#include "proto/coordinator.pb.h"
#include "ps_server/protocol/indexed_map.h"

namespace holdfast {

// A push that counts.
struct AcceptedPush {
  TaskId worker;
  uint64_t examples = 0;
  // Mean over the examples, where it is known.
  std::optional<double> loss;
  // Of an asynchronous push.
  std::optional<uint64_t> staleness;
  // It changed nothing because loss or gradient was not finite.
  bool not_finite = false;
};

// What a job has come to so far, for GetStatus. Decides nothing.
//
// Thread-compatible.
class Progress {
 public:
  Progress() = default;
  // As it was saved.
  explicit Progress(const proto::Position& position);

  // The pushes that a step is made of; in asynchronous jobs, one.
  void AddStep(const std::vector<AcceptedPush>& pushes);
  // A push that does not count.
  void AddRefused(proto::Verdict verdict);

  // Fills in examples, pushes, train_loss, workers and staleness.
  void AddTo(proto::GetStatusResponse* status) const;
  // The same for a checkpoint, with recent_losses in train_loss' place.
  void AddTo(proto::Position* position) const;

 private:
  template <typename Message>
  void AddCountsTo(Message* message) const;

  // Of one step.
  struct StepLoss {
    uint64_t examples = 0;
    double loss_sum = 0;
  };
  struct Given {
    uint64_t pushes = 0;
    uint64_t examples = 0;
  };

  proto::PushCounts pushes_;
  uint64_t examples_ = 0;
  std::deque<StepLoss> recent_;
  IndexedMap<TaskId, Given> workers_;
  std::map<uint64_t, uint64_t> staleness_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_PROGRESS_H_
