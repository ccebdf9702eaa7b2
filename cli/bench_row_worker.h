#ifndef HOLDFAST_CLI_BENCH_ROW_WORKER_H_
#define HOLDFAST_CLI_BENCH_ROW_WORKER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cluster.h"
#include "client/parameters.h"
#include "client/row_batch.h"
#include "common/cluster_spec.h"
#include "common/rpc/credentials.h"
#include "common/task_id.h"

namespace holdfast {

// What is trained in a benchmark of rows: an embedding table by SGD, and one
// dense value, as a job must have a variable.
struct BenchRowJob {
  uint32_t row_length = 16;
  // Of the table; ids are below it.
  uint64_t rows = 10'000'000;
  // Of a batch, by Zipf's law with this exponent.
  uint32_t ids = 65536;
  double zipf = 1.05;
};

// The only worker of a BenchRowJob, which is asynchronous and has no end. Its
// batches and gradients are made beforehand. Each operation is of the next
// batch of several, in turn, so that none finds the rows of the one before it
// in a cache, but for those that many batches have.
//
// Every call waits for 60 s at most. Thread-compatible.
class BenchRowWorker {
 public:
  // `credentials`: of the task. Declares the job.
  static absl::StatusOr<std::unique_ptr<BenchRowWorker>> Start(
      const ClusterSpec& spec, const TaskId& task,
      const Credentials& credentials, const BenchRowJob& job);

  // Has every row of the table made, by pushes of zeros.
  absl::Status Fill();

  // The ticket of the next push, which needs one.
  absl::Status TakeTicket();
  // Has the gradients of a batch's unique rows applied by every ps that holds
  // some.
  absl::Status Push();
  // Pulls the values of a batch's unique rows.
  absl::Status Pull();
  // Pushes a batch's unique rows, and pulls those of the next one, in one
  // exchange.
  absl::Status PushPull();

  // Of a batch with duplicates: RowBatch's Assign, Sum and Spread.
  void Assign();
  void Sum();
  void Spread();

  // All that a training step does beside its arithmetic: Assign of the next
  // batch, Sum of this one's gradients, PushPull, Spread of what was pulled.
  absl::Status TrainBatch();

  // Unique ids of a batch, on average.
  double unique_ids() const;

  Cluster& cluster() { return *cluster_; }

 private:
  struct Batch {
    std::vector<uint64_t> ids;
    client::RowBatch rows;
  };

  BenchRowWorker(std::unique_ptr<Cluster> cluster, const BenchRowJob& job);

  // The next one, in turn.
  const Batch& NextBatch();
  // Has a gradient of rows applied. Null: does not pull.
  absl::Status Apply(absl::Span<const uint64_t> ids, const float* gradients,
                     Parameters* next);

  const std::unique_ptr<Cluster> cluster_;
  const BenchRowJob job_;
  std::vector<Batch> batches_;
  size_t turn_ = 0;
  // Of each id of a batch with duplicates, or of as many unique ones.
  std::vector<float> gradients_;
  // Of each unique id.
  std::vector<float> sums_;
  // Of each id, as spread.
  std::vector<float> values_;
  client::RowBatch assigned_;
  // TrainBatch: the batch to push, and the one to pull.
  client::RowBatch this_batch_;
  client::RowBatch next_batch_;
  Parameters parameters_;
  std::optional<Ticket> ticket_;
};

}  // namespace holdfast

#endif  // HOLDFAST_CLI_BENCH_ROW_WORKER_H_
