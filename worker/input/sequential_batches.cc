// SPDX-License-Identifier: Apache-2.0
#include "worker/input/sequential_batches.h"

#include <algorithm>

#include "absl/status/status.h"
#include "common/base/status_macros.h"

namespace holdfast {

SequentialBatches::SequentialBatches(
    const ExampleSource* source, int64_t batch_size,
    absl::Span<const std::vector<int>> table_fields)
    : source_(source),
      batch_size_(std::min(batch_size, source->num_examples())),
      example_size_(source->spec().input_size()),
      inputs_(batch_size_ * example_size_),
      answers_(source->spec(), batch_size_),
      bags_(source->spec().id_fields, table_fields) {}

absl::StatusOr<Batch> SequentialBatches::Next() {
  const int64_t size = std::min(batch_size_, source_->num_examples() - next_);
  for (int64_t i = 0; i < size; ++i) {
    const auto input =
        absl::MakeSpan(inputs_).subspan(i * example_size_, example_size_);
    HOLDFAST_RETURN_IF_ERROR(source_->Read(next_ + i, answers_.At(i, input)));
  }
  next_ += size;
  Batch batch;
  batch.inputs = absl::MakeConstSpan(inputs_.data(), size * example_size_);
  answers_.Show(size, &batch);
  bags_.Assign(size, answers_.ids());
  if (!bags_.empty()) batch.bags = &bags_;
  return batch;
}

}  // namespace holdfast
