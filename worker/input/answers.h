// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_INPUT_ANSWERS_H_
#define HOLDFAST_WORKER_INPUT_ANSWERS_H_

#include <cstdint>
#include <memory>

#include "common/data/example_source.h"
#include "worker/input/batch.h"
#include "worker/input/id_bags.h"

namespace holdfast {

// Memory for all that a batch's examples contain besides their inputs: labels
// or targets, weights, and ids.
//
// Thread-compatible.
class Answers {
 public:
  Answers() = default;
  // Allocates memory for `examples` examples of `spec`, without initialising
  // it. If there was no memory, ok() is false.
  Answers(const ExampleSpec& spec, int64_t examples);

  bool ok() const { return ok_; }

  // Returns where example `i` of the batch must be read to: its input to
  // `input`, and all else to this object's memory.
  ExampleMemory At(int64_t i, absl::Span<float> input) const;
  // Makes `batch` refer to the labels, targets and weights of the first `size`
  // examples.
  void Show(int64_t size, Batch* batch) const;
  // The ids of all examples. Its pointers are null if the examples have no ids.
  BatchIds ids() const {
    return {ids_.get(), id_counts_.get(), id_values_.get()};
  }

 private:
  int64_t num_targets_ = 0;
  int64_t num_id_fields_ = 0;
  int64_t max_ids_ = 0;
  bool ok_ = true;
  std::unique_ptr<int32_t[]> labels_;
  std::unique_ptr<float[]> targets_;
  std::unique_ptr<float[]> weights_;
  std::unique_ptr<uint64_t[]> ids_;
  std::unique_ptr<uint32_t[]> id_counts_;
  std::unique_ptr<float[]> id_values_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_INPUT_ANSWERS_H_
