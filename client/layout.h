// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLIENT_LAYOUT_H_
#define HOLDFAST_CLIENT_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/cluster.pb.h"
#include "proto/coordinator.pb.h"

namespace holdfast::client {

// Elements [begin, begin + size) of a variable, row-major.
struct ElementRange {
  size_t variable = 0;  // its index as declared
  uint64_t begin = 0;
  uint64_t size = 0;

  friend bool operator==(const ElementRange& a, const ElementRange& b) {
    return a.variable == b.variable && a.begin == b.begin && a.size == b.size;
  }
};

// The variables of a job and the placement of their elements, and its embedding
// tables, as received from the coordinator and validated here.
//
// An immutable value. Invariants: every element of every variable is in exactly
// one slice; variables and tables have distinct names; variables are float32;
// each table has at least one value per row and allows at least one row per
// push.
class Layout {
 public:
  struct Variable {
    std::string name;
    std::vector<int64_t> shape;
    uint64_t size = 0;
    bool trainable = true;
  };
  struct Table {
    std::string name;
    uint32_t row_length = 0;
    uint32_t max_rows_per_push = 0;
    proto::Encoding push = proto::EXACT;
    proto::Encoding pull = proto::EXACT;
  };

  // Errors: INTERNAL if `placement` violates the invariants above;
  // FAILED_PRECONDITION if it belongs to a cluster with a different number of
  // ps.
  static absl::StatusOr<Layout> Make(
      const proto::GetPlacementResponse& placement, uint32_t num_ps);

  const proto::Declaration& declaration() const { return declaration_; }
  // In order of declaration.
  const std::vector<Variable>& variables() const { return variables_; }
  size_t num_trainable() const { return num_trainable_; }
  // In order of declaration. The id of a row determines on which ps the row is
  // (common/tensor/row_bucket.h).
  const std::vector<Table>& tables() const { return tables_; }
  uint32_t num_ps() const { return static_cast<uint32_t>(slices_.size()); }
  // The slices of one ps, in order of declaration, then by `begin`. None is
  // empty.
  const std::vector<ElementRange>& slices(uint32_t ps) const {
    return slices_[ps];
  }

 private:
  Layout() = default;

  proto::Declaration declaration_;
  std::vector<Variable> variables_;
  size_t num_trainable_ = 0;
  std::vector<Table> tables_;
  std::vector<std::vector<ElementRange>> slices_;
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_LAYOUT_H_
