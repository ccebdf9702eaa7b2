// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_INPUT_ID_BAGS_H_
#define HOLDFAST_WORKER_INPUT_ID_BAGS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "client/row_batch.h"
#include "common/data/example_source.h"

namespace holdfast {

// The ids of a batch's examples, as their source writes them
// (ExampleMemory::ids), example by example.
struct BatchIds {
  // [examples, sum of max_ids].
  const uint64_t* ids = nullptr;
  // [examples, fields].
  const uint32_t* counts = nullptr;
  // [examples, sum of max_ids], the value of each id; null if ids have no
  // values.
  const float* values = nullptr;
};

// How the ids of an example are laid out: `begins` says, for each field, the
// index of the field's first id within the example.
struct IdLayout {
  std::vector<int64_t> begins;
  int64_t ids_per_example = 0;

  int64_t num_fields() const { return static_cast<int64_t>(begins.size()); }
};

// The ids that a batch has in some of its fields, as bags. There is one bag for
// each example and field: the bag of example i and of the f-th of these fields
// has the number i * num_fields() + f, and contains the ids that the example
// has in the field, in their order. Each id in a bag is a use of a row; uses
// are numbered bag by bag.
//
// The memory is reused from batch to batch.
//
// Thread-compatible.
class IdBags {
 public:
  // Makes the bags of another batch. `fields` are indices into `layout`, in
  // ascending order.
  void Assign(const IdLayout& layout, absl::Span<const int> fields,
              int64_t examples, const BatchIds& from);
  // Makes the bags of the examples [begin, end) of `whole`, which must outlive
  // this. unique() stays that of `whole`.
  void AssignPart(const IdBags& whole, int64_t begin, int64_t end);

  int64_t num_fields() const { return num_fields_; }
  int64_t num_examples() const { return num_examples_; }
  // The distinct ids, in ascending order: those of the rows that the batch
  // reads and pushes.
  absl::Span<const uint64_t> unique() const { return unique_; }

  // Indexed by use: the index of its row in unique(), its bag, and its id's
  // value. values() is empty if ids have no values.
  absl::Span<const uint32_t> rows() const { return rows_; }
  absl::Span<const uint32_t> bags() const { return bags_; }
  absl::Span<const float> values() const { return values_; }
  // Bag b has the uses [offsets()[b], offsets()[b + 1]).
  absl::Span<const uint32_t> offsets() const { return offsets_; }
  // The row unique()[r] has the uses uses()[i] for i in [begins()[r],
  // begins()[r + 1]), in ascending order.
  absl::Span<const uint32_t> uses() const { return uses_; }
  absl::Span<const uint32_t> begins() const { return begins_; }

 private:
  int64_t num_fields_ = 0;
  int64_t num_examples_ = 0;
  client::RowBatch batch_;
  std::vector<uint64_t> ids_;
  std::vector<uint32_t> bags_;
  std::vector<float> values_;
  std::vector<uint32_t> offsets_;
  // Used if AssignPart has made the bags, and batch_ is unused.
  std::vector<uint32_t> part_uses_;
  std::vector<uint32_t> part_begins_;
  // Views of batch_ or, after AssignPart, of the vectors above and of the
  // members of `whole`.
  absl::Span<const uint64_t> unique_;
  absl::Span<const uint32_t> rows_;
  absl::Span<const uint32_t> uses_;
  absl::Span<const uint32_t> begins_;
};

// The bags of all tables of a model, for one batch at a time. Tables with the
// same fields share one IdBags.
//
// Thread-compatible.
class TableBags {
 public:
  TableBags() = default;
  // `fields` is indexed by table: the table's fields, as IdBags::Assign takes
  // them.
  TableBags(const std::vector<IdField>& id_fields,
            absl::Span<const std::vector<int>> fields);

  bool empty() const { return bags_of_.empty(); }
  int64_t num_tables() const { return static_cast<int64_t>(bags_of_.size()); }

  void Assign(int64_t examples, const BatchIds& from);
  // Like IdBags::AssignPart.
  void AssignPart(const TableBags& whole, int64_t begin, int64_t end);

  const IdBags& Of(int64_t table) const { return bags_[bags_of_[table]]; }

 private:
  IdLayout layout_;
  std::vector<std::vector<int>> fields_;
  // Indexed like fields_: the bags for these fields.
  std::vector<IdBags> bags_;
  // Indexed by table: the index of its bags in bags_.
  std::vector<int> bags_of_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_INPUT_ID_BAGS_H_
