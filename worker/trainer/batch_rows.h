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

// Reads the rows that `rows` wants (Parameters::WantRows), of whatever version
// it is that reads them.
using RowSource = std::function<absl::Status(Parameters* rows)>;

// The fields of each of a model's tables, as whoever makes batches takes them.
std::vector<std::vector<int>> FieldsOf(const Model& model);

// Brings batches the rows of embedding tables that they have.
//
// Thread-compatible.
class BatchRows {
 public:
  // Of a model with so many tables.
  explicit BatchRows(size_t num_tables) : num_tables_(num_tables) {}

  // Has the next pull into `values` read the rows of a batch with these ids,
  // and no others; null: none.
  void Want(const TableBags* bags, Parameters* values) const;

  // Has `batch` have its rows: those of `at`, where a pull has brought all of
  // them, or else what `read` reads. They stay as long as those of `at`, and
  // until the next call. Does nothing without tables.
  // Errors: those of `read`; INVALID_ARGUMENT when the batch has no ids.
  absl::Status Bring(const Parameters& at, const RowSource& read, Batch* batch);

 private:
  bool AreIn(const TableBags& bags, const Parameters& values) const;

  const size_t num_tables_;
  // What is read alone.
  Parameters alone_;
  std::vector<absl::Span<const float>> rows_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_TRAINER_BATCH_ROWS_H_
