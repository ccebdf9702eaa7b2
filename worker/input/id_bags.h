#ifndef HOLDFAST_WORKER_INPUT_ID_BAGS_H_
#define HOLDFAST_WORKER_INPUT_ID_BAGS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "client/row_batch.h"
#include "common/data/example_source.h"

namespace holdfast {

// The ids of a batch's examples, as their sources write them
// (ExampleMemory::ids): example after example.
struct BatchIds {
  // [examples, sum of max_ids].
  const uint64_t* ids = nullptr;
  // [examples, fields].
  const uint32_t* counts = nullptr;
  // As `ids`; null: they have none.
  const float* values = nullptr;
};

// Which fields of ids there are, and where those of each begin within an
// example.
struct IdLayout {
  std::vector<int64_t> begins;
  int64_t ids_per_example = 0;

  int64_t num_fields() const { return static_cast<int64_t>(begins.size()); }
};

// The ids that a batch has in some of its fields, as bags: that of example i
// and the f-th of these fields has the number i * num_fields() + f, and the ids
// that the example has of the field, in their order. Ids are numbered bag after
// bag: these are the uses of rows.
//
// Its memory serves one batch after the other.
//
// Thread-compatible.
class IdBags {
 public:
  // Begins with another batch. `fields`: their places in `layout`, rising.
  void Assign(const IdLayout& layout, absl::Span<const int> fields,
              int64_t examples, const BatchIds& from);
  // The examples from `begin` up to `end` of `whole`, with the rows of all.
  void AssignPart(const IdBags& whole, int64_t begin, int64_t end);

  int64_t num_fields() const { return num_fields_; }
  int64_t num_examples() const { return num_examples_; }
  // The ids, each once, rising: the rows that the batch reads and pushes.
  absl::Span<const uint64_t> unique() const { return unique_; }

  // By use: the place of its row in unique(), its bag, and its value; without
  // values, empty.
  absl::Span<const uint32_t> rows() const { return rows_; }
  absl::Span<const uint32_t> bags() const { return bags_; }
  absl::Span<const float> values() const { return values_; }
  // Bag b has the uses offsets()[b] up to offsets()[b + 1].
  absl::Span<const uint32_t> offsets() const { return offsets_; }
  // The row unique()[r] has the uses uses()[begins()[r]] up to
  // uses()[begins()[r + 1]], which rise.
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
  // Of a part, which has no batch_.
  std::vector<uint32_t> part_uses_;
  std::vector<uint32_t> part_begins_;
  // Views of batch_ or, of a part, of what is its own or the whole's.
  absl::Span<const uint64_t> unique_;
  absl::Span<const uint32_t> rows_;
  absl::Span<const uint32_t> uses_;
  absl::Span<const uint32_t> begins_;
};

// The bags of all tables of a model, for one batch at a time. Tables with the
// same fields share theirs.
//
// Thread-compatible.
class TableBags {
 public:
  TableBags() = default;
  // `fields`: by table, as of IdBags::Assign.
  TableBags(const std::vector<IdField>& id_fields,
            absl::Span<const std::vector<int>> fields);

  bool empty() const { return bags_of_.empty(); }
  int64_t num_tables() const { return static_cast<int64_t>(bags_of_.size()); }

  void Assign(int64_t examples, const BatchIds& from);
  // As IdBags::AssignPart.
  void AssignPart(const TableBags& whole, int64_t begin, int64_t end);

  const IdBags& Of(int64_t table) const { return bags_[bags_of_[table]]; }

 private:
  IdLayout layout_;
  std::vector<std::vector<int>> fields_;
  // As many as fields_.
  std::vector<IdBags> bags_;
  // By table, the place of its bags.
  std::vector<int> bags_of_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_INPUT_ID_BAGS_H_
