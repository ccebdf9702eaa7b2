// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_OFFLINE_CHECKPOINT_ROWS_H_
#define HOLDFAST_WORKER_OFFLINE_CHECKPOINT_ROWS_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/cluster.h"
#include "common/checkpoint/data_file.h"
#include "common/tensor/initializer.h"
#include "worker/model/model.h"

namespace holdfast {

// The rows of a checkpoint's embedding tables, in memory: each row takes memory
// for its values and some 20 bytes more.
//
// Immutable, and so thread-safe.
class CheckpointRows {
 public:
  // Reads the rows of a model's tables.
  // Errors: INVALID_ARGUMENT, with the table's name, when the checkpoint lacks
  // what the model needs; those of `reader`.
  static absl::StatusOr<CheckpointRows> Load(
      CheckpointReader* reader, absl::Span<const ModelTable> tables);

  // Reads the rows that `rows` wants, as a RowSource does
  // (worker/trainer/batch_rows.h). An id without a row in the checkpoint gets
  // the row's initial values.
  absl::Status Read(Parameters* rows) const;

 private:
  struct Table {
    RowInitializer initializer;
    size_t row_length = 0;
    // For each id, the index of its row in `values`.
    absl::flat_hash_map<uint64_t, uint32_t> places;
    std::vector<float> values;
  };

  std::vector<Table> tables_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_OFFLINE_CHECKPOINT_ROWS_H_
