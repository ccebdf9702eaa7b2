#ifndef HOLDFAST_COMMON_DATA_EXAMPLE_SOURCE_H_
#define HOLDFAST_COMMON_DATA_EXAMPLE_SOURCE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace holdfast {

// Ids that an example has, each the id of a row of an embedding table: any
// unsigned numbers.
struct IdField {
  std::string name;
  // At least 1.
  int64_t max_ids = 1;
  // How the ids are made, in words: the same cell is another row's id where
  // these differ. Empty: the source does not say.
  std::string origin;
};

// What each example of a source is made of: an input, ids, and a class or
// regression targets.
struct ExampleSpec {
  // Of the input, without a batch dimension; every dimension is at least 1.
  // Where there is none, beside ids, it is {0}.
  std::vector<int64_t> shape;
  // Labels are below it, where the data tell. Absent with targets.
  std::optional<int64_t> num_classes;
  // Numbers that the model's outputs should be. 0: the example has a class.
  int64_t num_targets = 0;
  // Whether an example says how much its loss counts.
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

  // The number of ids that an example has at most.
  int64_t max_ids() const {
    int64_t sum = 0;
    for (const IdField& field : id_fields) sum += field.max_ids;
    return sum;
  }
};

// Where the parts of an example are to be written.
struct ExampleMemory {
  // Row-major; as long as ExampleSpec::shape says.
  absl::Span<float> input;
  // The class, from 0. Not written where there are targets.
  int32_t* label = nullptr;
  // ExampleSpec::num_targets long.
  absl::Span<float> targets;
  // Written where the source is weighted.
  float* weight = nullptr;
  // ExampleSpec::max_ids() long: room for IdField::max_ids of each field, one
  // field after the other. How many a field has goes to id_counts, which is as
  // long as ExampleSpec::id_fields; what is behind them is not written.
  absl::Span<uint64_t> ids;
  absl::Span<uint32_t> id_counts;
  // As `ids`; finite. Written where the source has id_values.
  absl::Span<float> id_values;
};

// Examples with random access: what batches are made from.
//
// Thread-safe: batches are made by several threads at once.
class ExampleSource {
 public:
  virtual ~ExampleSource() = default;

  // At least 1.
  virtual int64_t num_examples() const = 0;

  virtual const ExampleSpec& spec() const = 0;

  // Writes example `index`, in [0, num_examples()), as a model takes it.
  // Whatever it does depends on `index` alone.
  virtual absl::Status Read(int64_t index, const ExampleMemory& to) const = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_EXAMPLE_SOURCE_H_
