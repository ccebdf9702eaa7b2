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

// What is trained in a benchmark: one tensor, whose gradient costs nothing.
struct BenchJob {
  // A multiple of 4.
  uint64_t bytes = 4;
  // Slices that it is cut into, each on a ps of its own; not more than
  // elements.
  uint32_t shards = 1;
  // How it travels: one of BenchCodecs. Those for gradients alone leave the
  // values exact.
  std::string codec = "exact";
  // One of BenchOptimizers.
  std::string optimizer = "sgd";
  bool asynchronous = true;
  // As in Cluster::Options.
  bool same_host = true;
};

// "exact", "float16" and the others that there are (proto/training.proto).
std::vector<std::string> BenchCodecs();

// With no, one and two slots.
std::vector<std::string> BenchOptimizers();

// A worker of a BenchJob, which trains until it is killed: the job has no end.
// The first worker declares it.
//
// Every call waits for 60 s at most. Thread-compatible.
class BenchWorker {
 public:
  // `credentials`: of the task.
  static absl::StatusOr<std::unique_ptr<BenchWorker>> Start(
      const ClusterSpec& spec, const TaskId& task,
      const Credentials& credentials, const BenchJob& job);

  // From now on pulled values are copied to memory of this object's, but by
  // ReadInPlace.
  void CopyValues();

  // Asynchronous jobs. The ticket of the next push, which needs one;
  // PrefetchTicket asks for the one after it, without waiting.
  absl::Status TakeTicket();
  void PrefetchTicket();
  // Has the gradient applied by every shard. The values are those of the last
  // pull.
  absl::Status Push();
  // The same in two parts: has the gradient written to memory of the push's, if
  // there is some (Cluster::Push::Memory), and then applied.
  absl::Status WriteInPlace();
  absl::Status PushWritten();
  absl::Status Pull();
  // Pulls, and reads every value where it lies.
  absl::Status ReadInPlace();
  // One after the other, in one exchange.
  absl::Status PushPull();

  // Synchronous jobs: push, contribution, and a pull of the next version.
  absl::Status Step();

  Cluster& cluster() { return *cluster_; }

 private:
  BenchWorker(std::unique_ptr<Cluster> cluster, uint32_t seat, uint64_t size);

  // Has `gradient` applied. Null: does not pull.
  absl::Status Apply(Cluster::Push* push, absl::Span<const float> gradient,
                     Parameters* next);

  const std::unique_ptr<Cluster> cluster_;
  const uint32_t seat_;
  const std::vector<float> gradient_;
  Parameters now_;
  // Where they are copied to.
  std::vector<float> copy_;
  // What Step pulls, before they are swapped.
  Parameters next_;
  // Of ReadInPlace, and what it has read.
  Parameters in_place_;
  uint64_t sum_ = 0;
  std::unique_ptr<Cluster::Push> written_;
  absl::Span<const float> written_gradient_;
  std::unique_ptr<Cluster::TicketRequest> request_;
  std::optional<Ticket> ticket_;
};

}  // namespace holdfast

#endif  // HOLDFAST_CLI_BENCH_WORKER_H_
