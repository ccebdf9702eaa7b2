// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLIENT_ROW_REQUEST_H_
#define HOLDFAST_CLIENT_ROW_REQUEST_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/parameters.h"
#include "client/row_batch.h"
#include "google/protobuf/repeated_field.h"
#include "proto/table.pb.h"

namespace holdfast {

// Rows of one embedding table (its index as declared), in the order in which a
// batch uses them, possibly with repetitions.
struct RowUse {
  size_t table = 0;
  absl::Span<const uint64_t> ids;
};

namespace client {

using EmbeddingTables =
    google::protobuf::RepeatedPtrField<proto::EmbeddingTable>;

// Checks that the table exists and that a batch may use so many rows of it.
// Errors: INVALID_ARGUMENT.
absl::Status CheckRowUse(const EmbeddingTables& tables, const RowUse& use);

// Rows of several tables that are read together. Pulls read each row once, in
// the order of ids; a RowRequest copies the values to the order in which the
// caller uses the rows, possibly with repetitions.
//
// Thread-compatible.
class RowRequest {
 public:
  // Replaces the rows by those of `uses`.
  // Errors: INVALID_ARGUMENT for a table that does not exist, has too many ids,
  // or is named twice; the request is then empty.
  absl::Status Assign(const EmbeddingTables& tables,
                      absl::Span<const RowUse> uses);

  // Makes pulls into `values` read exactly these rows.
  void WantFrom(Parameters* values) const;
  // Whether pulls into `values` read exactly these rows.
  bool IsWantedFrom(const Parameters& values) const;
  // Whether `values` contains all these rows, and possibly others, from a pull.
  bool IsIn(const Parameters& values) const;

  // The number of values of all ids of use `index`.
  size_t num_values(size_t index) const {
    return uses_[index].batch.inverse().size() * uses_[index].row_length;
  }
  // The number of uses.
  size_t size() const { return num_uses_; }
  // Errors: INVALID_ARGUMENT, naming the table, unless use `index` has
  // `num_values` values.
  absl::Status CheckSize(size_t index, size_t num_values) const;
  // Copies the values of use `index`, [ids, row_length] in the order of its
  // ids, from `values`, which must contain them.
  void Copy(size_t index, const Parameters& values, float* into) const;

 private:
  // Objects are reused from request to request, because they keep memory.
  struct Use {
    const proto::EmbeddingTable* declared = nullptr;
    size_t table = 0;
    size_t row_length = 0;
    RowBatch batch;
  };
  absl::Span<const Use> uses() const { return {uses_.data(), num_uses_}; }

  std::vector<Use> uses_;
  // The number of elements at the front of uses_ that belong to the request.
  size_t num_uses_ = 0;
};

}  // namespace client
}  // namespace holdfast

#endif  // HOLDFAST_CLIENT_ROW_REQUEST_H_
