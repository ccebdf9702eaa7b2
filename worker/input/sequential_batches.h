// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_INPUT_SEQUENTIAL_BATCHES_H_
#define HOLDFAST_WORKER_INPUT_SEQUENTIAL_BATCHES_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/data/example_source.h"
#include "worker/input/answers.h"
#include "worker/input/batch.h"
#include "worker/input/id_bags.h"

namespace holdfast {

// Makes batches of every example of a source once, in the source's order, as
// evaluation needs them.
//
// Thread-compatible.
class SequentialBatches {
 public:
  // `source` must outlive this object. `batch_size` must be at least 1.
  // `table_fields` is as in BatchPipeline::Options.
  SequentialBatches(const ExampleSource* source, int64_t batch_size,
                    absl::Span<const std::vector<int>> table_fields = {});

  // Returns the next batch. The last batch may be smaller, and empty batches
  // follow it. The batch's memory stays valid until the next call.
  // Errors: those of the source.
  absl::StatusOr<Batch> Next();

 private:
  const ExampleSource* const source_;
  const int64_t batch_size_;
  const int64_t example_size_;
  int64_t next_ = 0;
  std::vector<float> inputs_;
  const Answers answers_;
  TableBags bags_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_INPUT_SEQUENTIAL_BATCHES_H_
