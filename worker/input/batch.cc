// SPDX-License-Identifier: Apache-2.0
#include "worker/input/batch.h"

#include <algorithm>

namespace holdfast {

namespace {

// A range of [0, examples).
struct Range {
  int64_t begin = 0;
  int64_t size = 0;
};

// Returns the i-th of at most `parts` ranges; empty if there are at most i
// ranges.
Range RangeOf(int64_t examples, int64_t parts, int64_t i) {
  const int64_t count = std::min(parts, examples);
  if (i >= count) return {};
  const int64_t size = examples / count;
  const int64_t longer = examples % count;
  return {i * size + std::min(i, longer), size + (i < longer ? 1 : 0)};
}

}  // namespace

std::vector<Batch> CutBatch(const Batch& batch, uint32_t parts) {
  const int64_t examples = batch.size();
  const int64_t next_examples = batch.next_positions.size();
  std::vector<Batch> cut(std::min<int64_t>(parts, examples));
  for (size_t i = 0; i < cut.size(); ++i) {
    const int64_t example_size = batch.inputs.size() / examples;
    const auto [begin, size] = RangeOf(examples, parts, i);
    cut[i].inputs =
        batch.inputs.subspan(begin * example_size, size * example_size);
    cut[i].loss_scale = batch.loss_scale;
    cut[i].num_targets = batch.num_targets;
    if (batch.num_targets == 0) {
      cut[i].labels = batch.labels.subspan(begin, size);
    } else {
      cut[i].targets = batch.targets.subspan(begin * batch.num_targets,
                                             size * batch.num_targets);
    }
    if (!batch.weights.empty()) {
      cut[i].weights = batch.weights.subspan(begin, size);
    }
    if (!batch.positions.empty()) {
      cut[i].positions = batch.positions.subspan(begin, size);
    }
    const Range next = RangeOf(next_examples, parts, i);
    if (next.size == 0) continue;
    cut[i].next_inputs = batch.next_inputs.subspan(next.begin * example_size,
                                                   next.size * example_size);
    cut[i].next_positions = batch.next_positions.subspan(next.begin, next.size);
  }
  return cut;
}

void CutBags(const Batch& batch, std::vector<TableBags>* bags,
             absl::Span<Batch> cut) {
  if (batch.bags == nullptr) return;
  bags->resize(std::max(bags->size(), cut.size()));
  int64_t begin = 0;
  for (size_t i = 0; i < cut.size(); ++i) {
    const int64_t end = begin + cut[i].size();
    (*bags)[i].AssignPart(*batch.bags, begin, end);
    cut[i].bags = &(*bags)[i];
    cut[i].rows = batch.rows;
    begin = end;
  }
}

}  // namespace holdfast
