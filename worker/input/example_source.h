#ifndef HOLDFAST_WORKER_INPUT_EXAMPLE_SOURCE_H_
#define HOLDFAST_WORKER_INPUT_EXAMPLE_SOURCE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace holdfast {

// Labelled examples with random access: what batches are made from.
//
// Thread-safe: batches are made by several threads at once.
class ExampleSource {
 public:
  virtual ~ExampleSource() = default;

  // At least 1.
  virtual int64_t num_examples() const = 0;

  // Shape of one example's input, without a batch dimension; every dimension is
  // at least 1.
  virtual const std::vector<int64_t>& example_shape() const = 0;

  // Writes example `index`, in [0, num_examples()), as a model takes it: into
  // `input`, row-major and as long as example_shape() says, and `label`, its
  // class. Whatever it does depends on `index` alone.
  virtual absl::Status Read(int64_t index, absl::Span<float> input,
                            int32_t* label) const = 0;
};

// The number of values in one example of `source`.
inline int64_t ExampleSize(const ExampleSource& source) {
  int64_t size = 1;
  for (int64_t dimension : source.example_shape()) size *= dimension;
  return size;
}

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_INPUT_EXAMPLE_SOURCE_H_
