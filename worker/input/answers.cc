// SPDX-License-Identifier: Apache-2.0
#include "worker/input/answers.h"

#include <new>
#include <type_traits>

namespace holdfast {

Answers::Answers(const ExampleSpec& spec, int64_t examples)
    : num_targets_(spec.num_targets),
      num_id_fields_(static_cast<int64_t>(spec.id_fields.size())),
      max_ids_(spec.max_ids()) {
  const auto allocate = [&](int64_t of_each, auto* memory) {
    using T = typename std::remove_pointer_t<decltype(memory)>::element_type;
    int64_t size = 0;
    if (!__builtin_mul_overflow(examples, of_each, &size)) {
      memory->reset(new (std::nothrow) T[size]);
    }
    ok_ = ok_ && *memory != nullptr;
  };
  if (num_targets_ == 0) {
    allocate(1, &labels_);
  } else {
    allocate(num_targets_, &targets_);
  }
  if (spec.weighted) allocate(1, &weights_);
  if (num_id_fields_ == 0) return;
  allocate(max_ids_, &ids_);
  allocate(num_id_fields_, &id_counts_);
  if (spec.id_values) allocate(max_ids_, &id_values_);
}

ExampleMemory Answers::At(int64_t i, absl::Span<float> input) const {
  ExampleMemory memory;
  memory.input = input;
  if (num_targets_ == 0) {
    memory.label = &labels_[i];
  } else {
    memory.targets = absl::MakeSpan(&targets_[i * num_targets_], num_targets_);
  }
  if (weights_ != nullptr) memory.weight = &weights_[i];
  if (ids_ != nullptr) {
    memory.ids = absl::MakeSpan(&ids_[i * max_ids_], max_ids_);
    memory.id_counts =
        absl::MakeSpan(&id_counts_[i * num_id_fields_], num_id_fields_);
  }
  if (id_values_ != nullptr) {
    memory.id_values = absl::MakeSpan(&id_values_[i * max_ids_], max_ids_);
  }
  return memory;
}

void Answers::Show(int64_t size, Batch* batch) const {
  batch->num_targets = num_targets_;
  if (num_targets_ == 0) {
    batch->labels = absl::MakeConstSpan(labels_.get(), size);
  } else {
    batch->targets = absl::MakeConstSpan(targets_.get(), size * num_targets_);
  }
  if (weights_ != nullptr) {
    batch->weights = absl::MakeConstSpan(weights_.get(), size);
  }
}

}  // namespace holdfast
