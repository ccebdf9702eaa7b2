// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLIENT_ROW_READS_H_
#define HOLDFAST_CLIENT_ROW_READS_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/layout.h"
#include "client/parameters.h"
#include "client/plan.h"
#include "client/row_plan.h"
#include "client/tensors.h"
#include "common/tensor/buffer.h"
#include "common/tensor/tensor_piece.h"
#include "proto/shard.pb.h"

namespace holdfast::client {

// Checks that a pull can read the rows that `into` wants.
// Errors: INVALID_ARGUMENT, as for CheckRowIds.
absl::Status CheckWantedRows(const Layout& layout, const Parameters& into);

// The rows that one pull reads, that is, those that its Parameters want.
//
// Immutable. Thread-safe: Take writes different parts to different places.
class RowReads {
 public:
  // All arguments must outlive this object. `into` must satisfy
  // CheckWantedRows, and what it wants must not change. `plan`: the variables'
  // plan. `ask_all`: whether each ps without a part in `plan` gets one here, if
  // only an empty one, which asks for the version.
  RowReads(const Layout* layout, const Plan* plan, bool ask_all,
           Parameters* into, Reading reading = Reading::kAsDeclared);

  // Makes room for the values in `into`. Must be called before Take.
  void Prepare() const;

  size_t num_parts(uint32_t ps) const { return plan_.parts(ps).size(); }
  // The size of all values of a ps, in bytes.
  uint64_t BytesOf(uint32_t ps) const { return plan_.BytesOf(ps); }

  // Adds the rows of a part to the `ranges` of a request.
  void AddRanges(
      uint32_t ps, uint32_t part,
      google::protobuf::RepeatedPtrField<proto::ReadRange>* ranges) const;
  // Copies the values of a part to `into`.
  // Errors: INTERNAL if `pieces` are not what was requested; then nothing is
  // taken.
  absl::Status Take(uint32_t ps, uint32_t part,
                    absl::Span<const TensorPiece> pieces) const;

 private:
  // The encoding in which the values of a table arrive.
  proto::Encoding EncodingOf(size_t table) const;
  absl::Status Check(const RowPlan::RowRange& range,
                     const TensorPiece& piece) const;
  void Write(uint32_t ps, const RowPlan::RowRange& range,
             const Buffer& values) const;

  const Layout& layout_;
  Parameters& into_;
  const Reading reading_;
  RowPlan plan_;
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_ROW_READS_H_
