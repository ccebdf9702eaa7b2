#include "worker/input/answers.h"

#include <new>

namespace holdfast {

Answers::Answers(const ExampleSpec& spec, int64_t examples)
    : num_targets_(spec.num_targets) {
  if (num_targets_ == 0) {
    labels_.reset(new (std::nothrow) int32_t[examples]);
    ok_ = labels_ != nullptr;
  } else {
    int64_t size = 0;
    ok_ = !__builtin_mul_overflow(examples, num_targets_, &size);
    if (ok_) targets_.reset(new (std::nothrow) float[size]);
    ok_ = targets_ != nullptr;
  }
  if (spec.weighted) {
    weights_.reset(new (std::nothrow) float[examples]);
    ok_ = ok_ && weights_ != nullptr;
  }
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
