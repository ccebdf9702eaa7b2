// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_DATA_EXAMPLE_SOURCE_H_
#define HOLDFAST_COMMON_DATA_EXAMPLE_SOURCE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace holdfast {

// A field of an example that contains ids of rows of an embedding table. Ids
// may be any unsigned numbers.
struct IdField {
  std::string name;
  // At least 1.
  int64_t max_ids = 1;
  // How the ids are made, in words: if two sources differ here, equal cells may
  // give different ids. Empty if the source does not say.
  std::string origin;
};

// What each example of a source consists of: an input, ids, and a class or
// regression targets.
struct ExampleSpec {
  // Shape of the input, without a batch dimension; every dimension is at least
  // 1. It is {0} if there is no input, only ids.
  std::vector<int64_t> shape;
  // The number of classes; labels are below it. Absent if the data do not
  // determine it, or if examples have targets.
  std::optional<int64_t> num_classes;
  // The number of values that the model's outputs should match; 0 if the
  // example has a class.
  int64_t num_targets = 0;
  // Whether an example has a weight for its loss.
  bool weighted = false;
  std::vector<IdField> id_fields;
  // Whether each id has a value, by which its row is multiplied.
  bool id_values = false;

  // The number of values in an input.
  int64_t input_size() const {
    int64_t size = 1;
    for (const int64_t dimension : shape) size *= dimension;
    return size;
  }

  // The maximum number of ids in an example.
  int64_t max_ids() const {
    int64_t sum = 0;
    for (const IdField& field : id_fields) sum += field.max_ids;
    return sum;
  }
};

// The memory to which the parts of an example are written.
struct ExampleMemory {
  // Row-major; its length follows from ExampleSpec::shape.
  absl::Span<float> input;
  // The class, from 0. Not written if there are targets.
  int32_t* label = nullptr;
  // ExampleSpec::num_targets long.
  absl::Span<float> targets;
  // Written if the source is weighted.
  float* weight = nullptr;
  // ExampleSpec::max_ids() long: IdField::max_ids elements per field, one field
  // after the other. The number of ids of each field goes to id_counts, which
  // is as long as ExampleSpec::id_fields. The remaining elements of a field are
  // not written.
  absl::Span<uint64_t> ids;
  absl::Span<uint32_t> id_counts;
  // Parallel to `ids`; finite. Written if the source has id_values.
  absl::Span<float> id_values;
};

// Examples with random access, from which batches are made.
//
// Thread-safe: several threads make batches concurrently.
class ExampleSource {
 public:
  virtual ~ExampleSource() = default;

  // At least 1.
  virtual int64_t num_examples() const = 0;

  virtual const ExampleSpec& spec() const = 0;

  // Writes example `index`, in [0, num_examples()), in the form that a model
  // takes. The result depends only on `index`.
  virtual absl::Status Read(int64_t index, const ExampleMemory& to) const = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_EXAMPLE_SOURCE_H_
