// SPDX-License-Identifier: Apache-2.0
#include "client/layout.h"

#include <algorithm>
#include <limits>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/tensor/row_encoding.h"
#include "common/tensor/shape.h"

namespace holdfast::client {
namespace {

template <typename... What>
absl::Status Bad(const What&... what) {
  return absl::InternalError(absl::StrCat("placement: ", what...));
}

// Stands for a table, instead of a variable's index.
constexpr size_t kTable = std::numeric_limits<size_t>::max();

struct Placed {
  ElementRange range;
  uint32_t ps;
};

// Whether `placed`, all slices of one variable, cover each element exactly
// once.
bool CoverOnce(absl::Span<const Placed> placed, uint64_t size) {
  uint64_t next = 0;
  for (const Placed& place : placed) {
    if (place.range.begin != next) return false;
    if (place.range.size > size - next) return false;
    next += place.range.size;
  }
  return next == size;
}

}  // namespace

absl::StatusOr<Layout> Layout::Make(
    const proto::GetPlacementResponse& placement, uint32_t num_ps) {
  // If the placement has no addresses, the number of ps is unknown.
  if (placement.ps_addresses_size() != 0 &&
      placement.ps_addresses_size() != static_cast<int>(num_ps)) {
    return absl::FailedPreconditionError(
        absl::StrCat("the cluster has ", placement.ps_addresses_size(),
                     " ps tasks, but the ClusterSpec here has ", num_ps));
  }

  Layout layout;
  layout.declaration_ = placement.declaration();
  absl::flat_hash_map<std::string, size_t> index;
  for (const proto::Variable& declared : layout.declaration_.variables()) {
    const auto error = [&declared](const auto&... what) {
      return Bad("variable \"", declared.name(), "\" ", what...);
    };
    Variable variable;
    variable.name = declared.name();
    variable.shape.assign(declared.shape().begin(), declared.shape().end());
    variable.trainable = !declared.has_trainable() || declared.trainable();
    const absl::StatusOr<int64_t> size = NumElements(variable.shape);
    if (!size.ok()) return error(size.status().message());
    variable.size = static_cast<uint64_t>(*size);
    if (declared.dtype() != proto::FLOAT32) return error("is not float32");
    if (!index.emplace(variable.name, layout.variables_.size()).second) {
      return error("is declared twice");
    }
    if (variable.trainable) ++layout.num_trainable_;
    layout.variables_.push_back(std::move(variable));
  }

  for (const proto::EmbeddingTable& declared : layout.declaration_.tables()) {
    const auto error = [&declared](const auto&... what) {
      return Bad("table \"", declared.name(), "\" ", what...);
    };
    if (declared.row_length() == 0) return error("has rows without values");
    if (declared.max_rows_per_push() == 0) return error("takes no rows");
    // No slice may belong to a table.
    if (!index.emplace(declared.name(), kTable).second) {
      return error("has the name of another table or variable");
    }
    if (!IsRowPush(declared.push()) || !IsRowPull(declared.pull())) {
      return error("has encodings that rows cannot have");
    }
    layout.tables_.push_back({declared.name(), declared.row_length(),
                              declared.max_rows_per_push(), declared.push(),
                              declared.pull()});
  }

  std::vector<std::vector<Placed>> by_variable(layout.variables_.size());
  for (const proto::Slice& slice : placement.slices()) {
    const auto it = index.find(slice.variable());
    if (it == index.end() || it->second == kTable) {
      return Bad("slice of \"", slice.variable(),
                 "\", which is not declared as a variable");
    }
    if (slice.ps() >= num_ps) {
      return Bad("slice of \"", slice.variable(), "\" at ps ", slice.ps(),
                 " of ", num_ps);
    }
    if (slice.size() == 0) continue;
    by_variable[it->second].push_back(
        {{it->second, slice.begin(), slice.size()}, slice.ps()});
  }

  layout.slices_.resize(num_ps);
  for (size_t v = 0; v < by_variable.size(); ++v) {
    std::vector<Placed>& placed = by_variable[v];
    std::sort(placed.begin(), placed.end(),
              [](const Placed& a, const Placed& b) {
                return a.range.begin < b.range.begin;
              });
    if (!CoverOnce(placed, layout.variables_[v].size)) {
      return Bad("the slices of \"", layout.variables_[v].name,
                 "\" do not cover each of its ", layout.variables_[v].size,
                 " elements exactly once");
    }
    for (const Placed& place : placed) {
      layout.slices_[place.ps].push_back(place.range);
    }
  }
  return layout;
}

}  // namespace holdfast::client
