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

// Whether a pull can read the rows that `into` wants.
// Errors: INVALID_ARGUMENT, as CheckRowIds.
absl::Status CheckWantedRows(const Layout& layout, const Parameters& into);

// The rows that one pull reads: those that its Parameters want.
//
// Immutable. Thread-safe: Take writes each part to places of its own.
class RowReads {
 public:
  // All must outlive this object; `into` as CheckWantedRows takes it, and
  // wanting the same. `plan`: that of the variables. `ask_all`: each ps that
  // has no part by it has one here, be it an empty one, which asks for the
  // version.
  RowReads(const Layout* layout, const Plan* plan, bool ask_all,
           Parameters* into, Reading reading = Reading::kAsDeclared);

  // Makes room in `into`; before Take.
  void Prepare() const;

  size_t num_parts(uint32_t ps) const { return plan_.parts(ps).size(); }
  // Of all values of a ps.
  uint64_t BytesOf(uint32_t ps) const { return plan_.BytesOf(ps); }

  // Asks for the rows of a part.
  void AddRanges(
      uint32_t ps, uint32_t part,
      google::protobuf::RepeatedPtrField<proto::ReadRange>* ranges) const;
  // Brings the values of a part to their places.
  // Errors: INTERNAL when `pieces` are not what was asked for; then nothing has
  // been taken.
  absl::Status Take(uint32_t ps, uint32_t part,
                    absl::Span<const TensorPiece> pieces) const;

 private:
  // In which the values of a table come.
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
