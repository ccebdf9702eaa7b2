// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_BENCH_ROW_WORKER_H_
#define HOLDFAST_CLI_BENCH_ROW_WORKER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/cluster.h"
#include "client/parameters.h"
#include "client/row_batch.h"
#include "common/job/cluster_spec.h"
#include "common/job/task_id.h"
#include "common/rpc/credentials.h"

namespace holdfast {

// The job of a benchmark of rows: an embedding table with SGD, without
// variables.
struct BenchRowJob {
  // Values in a row.
  uint32_t row_length = 16;
  // Rows in the table. Their ids are 0 to rows - 1.
  uint64_t rows = 10'000'000;
  // Ids in a batch, duplicates included.
  uint32_t ids = 65536;
  // Exponent of Zipf's law, from which ids are drawn.
  double zipf = 1.05;
};

// The only worker of a BenchRowJob, which is asynchronous and has no end. Its
// batches and gradients are made at the start. Each operation takes the next of
// several batches in turn, so that only rows that most batches contain are
// found in a cache.
//
// Every call waits for 60 s at most. Thread-compatible.
class BenchRowWorker {
 public:
  // Declares the job. `credentials` are those of the task.
  static absl::StatusOr<std::unique_ptr<BenchRowWorker>> Start(
      const ClusterSpec& spec, const TaskId& task,
      const Credentials& credentials, const BenchRowJob& job);

  // Creates every row of the table, by pushing gradients of zeros.
  absl::Status Fill();

  // Takes the ticket that the next push needs.
  absl::Status TakeTicket();
  // Pushes the gradients of a batch's unique rows, and waits until every ps has
  // applied them.
  absl::Status Push();
  // Pulls the values of a batch's unique rows.
  absl::Status Pull();
  // Pushes a batch's unique rows, and pulls those of the next one, in one
  // exchange.
  absl::Status PushPull();

  // Each calls the function of RowBatch with the same name for a batch with
  // duplicates.
  void Assign();
  void Sum();
  void Spread();

  // Does what a training step does besides arithmetic: assigns the next batch,
  // sums this one's gradients, pushes and pulls, and spreads the pulled rows.
  absl::Status TrainBatch();

  // Mean number of unique ids in a batch.
  double unique_ids() const;

  Cluster& cluster() { return *cluster_; }

 private:
  struct Batch {
    std::vector<uint64_t> ids;
    client::RowBatch rows;
  };

  BenchRowWorker(std::unique_ptr<Cluster> cluster, const BenchRowJob& job);

  // The batch whose turn it is.
  const Batch& NextBatch();
  // Pushes the gradients of rows and waits for the verdict. Pulls into `next`
  // in the same exchange, unless it is null.
  absl::Status Apply(absl::Span<const uint64_t> ids, const float* gradients,
                     Parameters* next);

  const std::unique_ptr<Cluster> cluster_;
  const BenchRowJob job_;
  std::vector<Batch> batches_;
  size_t turn_ = 0;
  // One gradient for each id of a batch; a push of unique rows uses as many as
  // it needs, from the first on.
  std::vector<float> gradients_;
  // Summed gradients of the unique rows.
  std::vector<float> sums_;
  // The values of the rows of a batch, one row for each id.
  std::vector<float> values_;
  client::RowBatch assigned_;
  // The batch that TrainBatch pushes next, and memory for the one after it.
  client::RowBatch this_batch_;
  client::RowBatch next_batch_;
  Parameters parameters_;
  std::optional<Ticket> ticket_;
};

}  // namespace holdfast

#endif  // HOLDFAST_CLI_BENCH_ROW_WORKER_H_
