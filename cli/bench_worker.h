// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_BENCH_WORKER_H_
#define HOLDFAST_CLI_BENCH_WORKER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/cluster.h"
#include "common/job/cluster_spec.h"
#include "common/job/task_id.h"
#include "proto/cluster.pb.h"

namespace holdfast {

// The job of a benchmark: one tensor, whose gradient costs nothing.
struct BenchJob {
  // The size of the tensor, a multiple of 4.
  uint64_t bytes = 4;
  // Number of slices of the tensor, each on a ps of its own; at most one per
  // element.
  uint32_t shards = 1;
  // Encoding on the wire: one of BenchCodecs. If the codec is only for
  // gradients, values are sent exactly.
  std::string codec = "exact";
  // One of BenchOptimizers.
  std::string optimizer = "sgd";
  bool asynchronous = true;
  // As in Cluster::Options.
  bool same_host = true;
};

// "exact", "float16" and the other encodings of proto/training.proto.
std::vector<std::string> BenchCodecs();

// Optimizers with no, one and two slots.
std::vector<std::string> BenchOptimizers();

// A worker of a BenchJob, which trains until it is killed, because the job has
// no end. The first worker declares the job.
//
// Every call waits for 60 s at most. Thread-compatible.
class BenchWorker {
 public:
  // `credentials` are those of the task.
  static absl::StatusOr<std::unique_ptr<BenchWorker>> Start(
      const ClusterSpec& spec, const TaskId& task,
      const Credentials& credentials, const BenchJob& job);

  // From now on, copies pulled values to memory of this object, except in
  // ReadInPlace.
  void CopyValues();

  // For asynchronous jobs: takes the ticket that the next push needs.
  // PrefetchTicket requests the ticket after it, without waiting.
  absl::Status TakeTicket();
  void PrefetchTicket();
  // Pushes the gradient, computed on the values of the last pull, and waits
  // until every shard has applied it.
  absl::Status Push();
  // Do in two parts what Push does. WriteInPlace writes the gradient to the
  // memory of a new push (Cluster::Push::Memory), if it has some; PushWritten
  // then pushes the gradient.
  absl::Status WriteInPlace();
  absl::Status PushWritten();
  absl::Status Pull();
  // Pulls the values, and reads each of them where it is, without a copy.
  absl::Status ReadInPlace();
  // Does what Push and Pull do, in one exchange.
  absl::Status PushPull();

  // For synchronous jobs: pushes and contributes the gradient, and pulls the
  // next version.
  absl::Status Step();

  Cluster& cluster() { return *cluster_; }

 private:
  BenchWorker(std::unique_ptr<Cluster> cluster, uint32_t seat, uint64_t size);

  // Pushes `gradient` and waits for the verdict. Pulls into `next` unless it is
  // null.
  absl::Status Apply(Cluster::Push* push, absl::Span<const float> gradient,
                     Parameters* next);

  const std::unique_ptr<Cluster> cluster_;
  const uint32_t seat_;
  const std::vector<float> gradient_;
  Parameters now_;
  // Copy of the pulled values.
  std::vector<float> copy_;
  // Pulled by Step, then swapped with now_.
  Parameters next_;
  // The values that ReadInPlace reads, and their sum.
  Parameters in_place_;
  uint64_t sum_ = 0;
  std::unique_ptr<Cluster::Push> written_;
  absl::Span<const float> written_gradient_;
  std::unique_ptr<Cluster::TicketRequest> request_;
  std::optional<Ticket> ticket_;
};

}  // namespace holdfast

#endif  // HOLDFAST_CLI_BENCH_WORKER_H_
