#ifndef HOLDFAST_WORKER_INPUT_BATCH_H_
#define HOLDFAST_WORKER_INPUT_BATCH_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "worker/input/id_bags.h"

namespace holdfast {

// Some examples, as a model takes them. A view: whoever made the batch owns the
// memory and says how long it stays.
struct Batch {
  // Row-major [examples, ...shape of one example].
  absl::Span<const float> inputs;
  // The class of each example, from 0. Empty where there are targets.
  absl::Span<const int32_t> labels;
  // The place of each example in the training stream (example_order.h), which
  // names it for whatever is random in training. Empty outside training.
  absl::Span<const int64_t> positions;

  // Of the batch that is likely to be next, where that is made: a model may
  // begin to bring it to its device. The inputs are those that belong to these
  // positions, and stay until the model has returned. Empty: none is known.
  absl::Span<const float> next_inputs;
  absl::Span<const int64_t> next_positions;

  // A model may multiply the loss's gradient by it, a power of two, so that
  // small gradients do not vanish in float16 (proto::LossScale); what it makes
  // of its variables' gradients it divides by it again.
  float loss_scale = 1;

  // What the outputs of each example should be, row-major [examples,
  // num_targets]; empty where there are labels.
  absl::Span<const float> targets;
  int64_t num_targets = 0;
  // How much the loss of each example counts. Empty: 1 each.
  absl::Span<const float> weights;

  // The ids of the examples; null where no table of the model wants them.
  const TableBags* bags = nullptr;
  // By table (Model::Tables), the values of the rows that they have,
  // [unique ids, row_length]. Of whoever trains or evaluates.
  absl::Span<const absl::Span<const float>> rows;

  // Of an evaluation: the model is to tell its outputs (Model::Outputs).
  bool wants_outputs = false;

  int64_t size() const {
    return static_cast<int64_t>(
        num_targets == 0 ? labels.size() : targets.size() / num_targets);
  }
};

// The batch in `parts` ranges whose sizes differ by one at most, the longer
// first; in fewer where it has fewer examples. None where it has none. The next
// one of a range is that of its place in the batch's next. Ids stay those of
// the whole batch (CutBags).
std::vector<Batch> CutBatch(const Batch& batch, uint32_t parts);

// Has the ranges that `batch` was cut in have their ids, in the memory of
// `bags`. Their rows are those of the whole batch.
void CutBags(const Batch& batch, std::vector<TableBags>* bags,
             absl::Span<Batch> cut);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_INPUT_BATCH_H_
