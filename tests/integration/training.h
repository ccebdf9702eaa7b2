// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_TESTS_INTEGRATION_TRAINING_H_
#define HOLDFAST_TESTS_INTEGRATION_TRAINING_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cluster.h"
#include "common/job/cluster_spec.h"
#include "common/job/ids.h"
#include "common/rpc/credentials.h"
#include "proto/cluster.pb.h"

namespace holdfast {

// A job whose values are easily calculated: SGD at learning rate 1, and
// gradients whose elements are all the same whole number, so that no sum is
// rounded.
//
//   variable  shape   first value   each step
//   w [3,2] 10 less the step's mean gradient frozen [5] 7 not trainable b [] 0
//   as w tail [7] 10 as w
proto::Declaration MakeDeclaration(uint64_t total_steps);

// Connects a worker of `spec`, which tolerates a silent coordinator for a
// second. `digest` is the digest of its job file.
absl::StatusOr<std::unique_ptr<Cluster>> ConnectWorker(
    const ClusterSpec& spec, uint32_t replica,
    const std::string& digest = "job", const Credentials& credentials = {});

// The gradient of the worker with this index: 1, 3, 5, ... The mean of the
// first two is 2.
inline float GradientOf(uint32_t replica) {
  return static_cast<float>(2 * replica + 1);
}

struct TrainOptions {
  uint32_t replica = 0;
  uint64_t total_steps = 1;
  // The expected mean gradient of each step.
  float mean = 2;
  // Called at the beginning of each step. May be empty.
  std::function<void(GlobalStep)> on_step;
  // The timeout of each wait.
  absl::Duration patience = absl::Seconds(30);
};

// Declares the job, trains with one push per step until the last is committed,
// and leaves.
// Errors: INTERNAL for a wrong value, or a verdict other than ACCEPTED;
// otherwise those of Cluster.
absl::Status Train(Cluster* cluster, const TrainOptions& options);

// Sends one push for the open step and offers it.
// Errors: those of Train.
absl::StatusOr<std::unique_ptr<Cluster::Push>> PushAndOffer(
    Cluster* cluster, GlobalStep step, uint32_t replica, absl::Time deadline);

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_INTEGRATION_TRAINING_H_
