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

// Rows of one embedding table, by its index as declared, in the order in which
// a batch uses them; some perhaps more than once.
struct RowUse {
  size_t table = 0;
  absl::Span<const uint64_t> ids;
};

namespace client {

using EmbeddingTables =
    google::protobuf::RepeatedPtrField<proto::EmbeddingTable>;

// Whether there is such a table, and a batch may use so many rows of it.
// Errors: INVALID_ARGUMENT.
absl::Status CheckRowUse(const EmbeddingTables& tables, const RowUse& use);

// Rows of several tables that are read together: between what pulls read and
// the order in which the caller uses it.
//
// Thread-compatible.
class RowRequest {
 public:
  // Begins with other rows.
  // Errors: INVALID_ARGUMENT for a table that is not there, that has too many
  // ids, or that is named twice; the request is empty then.
  absl::Status Assign(const EmbeddingTables& tables,
                      absl::Span<const RowUse> uses);

  // Has pulls into `values` read these rows, and no others.
  void WantFrom(Parameters* values) const;
  // Whether pulls into `values` read exactly these rows.
  bool IsWantedFrom(const Parameters& values) const;
  // Whether a pull has brought all these rows, among others perhaps.
  bool IsIn(const Parameters& values) const;

  // The number of values of use `index`: of all its ids.
  size_t num_values(size_t index) const {
    return uses_[index].batch.inverse().size() * uses_[index].row_length;
  }
  // The number of uses.
  size_t size() const { return num_uses_; }
  // Errors: INVALID_ARGUMENT, naming the table, unless use `index` has so many
  // values.
  absl::Status CheckSize(size_t index, size_t num_values) const;
  // Copies the values of use `index`, [ids, row_length] in the order of its
  // ids, from `values`, which must have them.
  void Copy(size_t index, const Parameters& values, float* into) const;

 private:
  // Kept from request to request for their memory.
  struct Use {
    const proto::EmbeddingTable* declared = nullptr;
    size_t table = 0;
    size_t row_length = 0;
    RowBatch batch;
  };
  absl::Span<const Use> uses() const { return {uses_.data(), num_uses_}; }

  std::vector<Use> uses_;
  // The first of them are the request's.
  size_t num_uses_ = 0;
};

}  // namespace client
}  // namespace holdfast

#endif  // HOLDFAST_CLIENT_ROW_REQUEST_H_
