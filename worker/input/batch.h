#ifndef HOLDFAST_WORKER_INPUT_BATCH_H_
#define HOLDFAST_WORKER_INPUT_BATCH_H_

#include <cstdint>

#include "absl/types/span.h"

namespace holdfast {

// Some examples, as a model takes them. A view: whoever made the batch owns the
// memory and says how long it stays.
struct Batch {
  // Row-major [examples, ...shape of one example].
  absl::Span<const float> inputs;
  // The class of each example, from 0.
  absl::Span<const int32_t> labels;

  int64_t size() const { return static_cast<int64_t>(labels.size()); }
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_INPUT_BATCH_H_
