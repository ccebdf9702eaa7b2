// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_INPUT_BATCH_H_
#define HOLDFAST_WORKER_INPUT_BATCH_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "worker/input/id_bags.h"

namespace holdfast {

class ParameterArrival;

// Some examples, in the form that a model takes. A batch is a view of memory
// whose owner, the maker of the batch, says how long it stays valid.
struct Batch {
  // The inputs of the examples, row-major: [examples, ...shape of one example].
  absl::Span<const float> inputs;
  // The class of each example, from 0. Empty if there are targets.
  absl::Span<const int32_t> labels;
  // The place of each example in the training stream (example_order.h), from
  // which everything random in training follows. Empty outside training.
  absl::Span<const int64_t> positions;

  // The inputs and positions of the batch that is likely to be next, if it is
  // ready. A model may begin to copy these inputs to its device. They stay
  // valid until the model's call for this batch has returned. Empty if no next
  // batch is known.
  absl::Span<const float> next_inputs;
  absl::Span<const int64_t> next_positions;

  // A power of two by which a model may multiply the loss's gradient, so that
  // small gradients do not vanish in float16 (proto::LossScale). The model then
  // divides the gradients of its variables by it.
  float loss_scale = 1;

  // What the outputs of each example should be, row-major [examples,
  // num_targets]; empty if there are labels.
  absl::Span<const float> targets;
  int64_t num_targets = 0;
  // How much the loss of each example counts. Empty: all weights are 1.
  absl::Span<const float> weights;

  // The ids of the examples, indexed by table. Null if the model has no tables.
  const TableBags* bags = nullptr;
  // Indexed by table (Model::Tables): the values of the rows of these ids,
  // [unique ids, row_length]. Filled in by the trainer or the evaluator.
  absl::Span<const absl::Span<const float>> rows;

  // The arrival of the parameters; null if all have arrived. Set only for
  // models that await their parameters (Model::AwaitsParameters).
  ParameterArrival* arrival = nullptr;

  // Only in an evaluation: whether the model must return its outputs
  // (BatchResult::outputs).
  bool wants_outputs = false;

  int64_t size() const {
    return static_cast<int64_t>(
        num_targets == 0 ? labels.size() : targets.size() / num_targets);
  }
};

// Cuts the batch into `parts` ranges whose sizes differ by at most one, the
// longer ones first. If the batch has fewer examples than that, each is a range
// of its own. The next batch, if known, is cut in the same way: its i-th range
// is the next batch of the i-th range. The ranges have no ids or rows
// (CutBags), and no arrival.
std::vector<Batch> CutBatch(const Batch& batch, uint32_t parts);

// Gives each of the ranges `cut` that CutBatch made from `batch` its own ids,
// which are kept in `bags`, and the rows of the whole batch.
void CutBags(const Batch& batch, std::vector<TableBags>* bags,
             absl::Span<Batch> cut);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_INPUT_BATCH_H_
