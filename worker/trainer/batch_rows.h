// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_TRAINER_BATCH_ROWS_H_
#define HOLDFAST_WORKER_TRAINER_BATCH_ROWS_H_

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/cluster.h"
#include "worker/input/batch.h"
#include "worker/input/id_bags.h"
#include "worker/model/model.h"

namespace holdfast {

// Reads the rows that `rows` wants (Parameters::WantRows) into `rows`. The
// source chooses the version of the rows.
using RowSource = std::function<absl::Status(Parameters* rows)>;

// Returns, indexed by table, the fields whose ids have rows in the table, as
// BatchPipeline and SequentialBatches take them.
std::vector<std::vector<int>> FieldsOf(const Model& model);

// Gives batches the rows of embedding tables that belong to their ids.
//
// Thread-compatible.
class BatchRows {
 public:
  // For a model with `num_tables` tables.
  explicit BatchRows(size_t num_tables) : num_tables_(num_tables) {}

  // Makes the next pull into `values` read the rows of a batch with these ids,
  // and no other rows. If `bags` is null, the pull reads no rows.
  void Want(const TableBags* bags, Parameters* values) const;

  // Sets Batch::rows: to the rows in `at`, if a pull has read all that the
  // batch needs into it, otherwise to rows that it gets from `read`. The rows
  // stay valid until the next call, or until those in `at` change. Does nothing
  // if the model has no tables. Errors: those of `read`; INVALID_ARGUMENT when
  // the batch has no ids.
  absl::Status Bring(const Parameters& at, const RowSource& read, Batch* batch);

 private:
  bool AreIn(const TableBags& bags, const Parameters& values) const;

  const size_t num_tables_;
  // The rows that `read` has read.
  Parameters alone_;
  std::vector<absl::Span<const float>> rows_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_TRAINER_BATCH_ROWS_H_
