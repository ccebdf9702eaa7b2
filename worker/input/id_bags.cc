// SPDX-License-Identifier: Apache-2.0
#include "worker/input/id_bags.h"

#include <algorithm>
#include <cstddef>

namespace holdfast {

void IdBags::Assign(const IdLayout& layout, absl::Span<const int> fields,
                    int64_t examples, const BatchIds& from) {
  num_fields_ = static_cast<int64_t>(fields.size());
  num_examples_ = examples;
  ids_.clear();
  bags_.clear();
  values_.clear();
  offsets_.assign(1, 0);
  uint32_t bag = 0;
  for (int64_t i = 0; i < examples; ++i) {
    for (const int field : fields) {
      const int64_t begin = i * layout.ids_per_example + layout.begins[field];
      const uint32_t count = from.counts[i * layout.num_fields() + field];
      ids_.insert(ids_.end(), from.ids + begin, from.ids + begin + count);
      if (from.values != nullptr) {
        values_.insert(values_.end(), from.values + begin,
                       from.values + begin + count);
      }
      bags_.insert(bags_.end(), count, bag++);
      offsets_.push_back(static_cast<uint32_t>(ids_.size()));
    }
  }
  batch_.Assign(ids_);
  unique_ = batch_.unique();
  rows_ = batch_.inverse();
  uses_ = batch_.uses();
  begins_ = batch_.begins();
}

void IdBags::AssignPart(const IdBags& whole, int64_t begin, int64_t end) {
  num_fields_ = whole.num_fields_;
  num_examples_ = end - begin;
  const size_t first_bag = begin * num_fields_;
  const size_t num_bags = num_examples_ * num_fields_;
  const uint32_t first = whole.offsets_[first_bag];
  const size_t num_uses = whole.offsets_[first_bag + num_bags] - first;
  offsets_.resize(num_bags + 1);
  for (size_t b = 0; b <= num_bags; ++b) {
    offsets_[b] = whole.offsets_[first_bag + b] - first;
  }
  bags_.resize(num_uses);
  for (size_t k = 0; k < num_uses; ++k) {
    bags_[k] = whole.bags_[first + k] - static_cast<uint32_t>(first_bag);
  }
  values_.clear();
  if (!whole.values_.empty()) {
    values_.assign(whole.values_.begin() + first,
                   whole.values_.begin() + first + num_uses);
  }
  unique_ = whole.unique_;
  rows_ = whole.rows_.subspan(first, num_uses);
  // A counting sort of the uses by their rows.
  part_begins_.assign(unique_.size() + 1, 0);
  for (const uint32_t row : rows_) ++part_begins_[row + 1];
  for (size_t r = 0; r < unique_.size(); ++r) {
    part_begins_[r + 1] += part_begins_[r];
  }
  part_uses_.resize(num_uses);
  std::vector<uint32_t> next(part_begins_.begin(), part_begins_.end() - 1);
  for (size_t k = 0; k < num_uses; ++k) {
    part_uses_[next[rows_[k]]++] = static_cast<uint32_t>(k);
  }
  uses_ = part_uses_;
  begins_ = part_begins_;
}

TableBags::TableBags(const std::vector<IdField>& id_fields,
                     absl::Span<const std::vector<int>> fields) {
  for (const IdField& field : id_fields) {
    layout_.begins.push_back(layout_.ids_per_example);
    layout_.ids_per_example += field.max_ids;
  }
  for (const std::vector<int>& of_table : fields) {
    const auto same = std::find(fields_.begin(), fields_.end(), of_table);
    bags_of_.push_back(static_cast<int>(same - fields_.begin()));
    if (same == fields_.end()) fields_.push_back(of_table);
  }
  bags_.resize(fields_.size());
}

void TableBags::Assign(int64_t examples, const BatchIds& from) {
  for (size_t i = 0; i < bags_.size(); ++i) {
    bags_[i].Assign(layout_, fields_[i], examples, from);
  }
}

void TableBags::AssignPart(const TableBags& whole, int64_t begin, int64_t end) {
  layout_ = whole.layout_;
  fields_ = whole.fields_;
  bags_of_ = whole.bags_of_;
  bags_.resize(whole.bags_.size());
  for (size_t i = 0; i < bags_.size(); ++i) {
    bags_[i].AssignPart(whole.bags_[i], begin, end);
  }
}

}  // namespace holdfast
