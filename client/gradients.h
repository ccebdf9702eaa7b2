// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLIENT_GRADIENTS_H_
#define HOLDFAST_CLIENT_GRADIENTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/compression.h"
#include "client/layout.h"
#include "client/loan.h"
#include "client/neighbors.h"
#include "client/plan.h"
#include "client/row_gradients.h"
#include "common/job/ids.h"
#include "common/tensor/buffer.h"
#include "common/tensor/tensor_piece.h"

namespace holdfast::client {

// The gradients of one push: the user's memory, lent until AwaitReturn, and
// what is sent instead of it if the job declares an encoding, or if a ps of
// this host reads the gradient from our regions. In a job with embedding tables
// also the gradients of rows.
//
// Thread-compatible, except that PiecesOf may be called from any thread once
// its part's variables have been taken; in a job with tables, only after
// CloseRows.
class Gradients {
 public:
  // `layout`, `plan`, by which the gradients are sent, `encoder` and
  // `neighbors`, which is null if nothing is lent, must outlive this object.
  // `step`: the version of ps 0 on which the gradients are computed.
  Gradients(PushSequence push, const Layout& layout, const Plan& plan,
            GradientEncoder* encoder, Neighbors* neighbors,
            GlobalStep step = GlobalStep(0));

  // Whether Take may be called.
  // Errors: INVALID_ARGUMENT, as for Push::Add.
  absl::Status Check(size_t variable, absl::Span<const float> gradient) const;
  // Errors: RESOURCE_EXHAUSTED or UNAVAILABLE if there is no memory for what is
  // lent; then nothing is taken.
  absl::Status Take(size_t variable, absl::Span<const float> gradient);
  // See Push::Memory.
  absl::Span<float> Memory(size_t variable);

  // Errors: FAILED_PRECONDITION while a trainable variable is missing.
  absl::Status CheckComplete() const;

  // Whether TakeRows may be called.
  // Errors: those of Push::AddRows.
  absl::Status CheckRows(size_t table, absl::Span<const uint64_t> ids,
                         absl::Span<const float> gradients) const;
  // Returns whether all tables' rows have been taken.
  bool TakeRows(size_t table, absl::Span<const uint64_t> ids,
                absl::Span<const float> gradients);
  // Declares that tables not taken so far have no rows. False: there is nothing
  // to close, or it was called before.
  bool CloseRows() { return rows_.has_value() && rows_->Close(); }
  // Null in a job without tables.
  const RowGradients* rows() const { return rows_ ? &*rows_ : nullptr; }

  // The number of parts for a ps: those of `plan`, which is the constructor's
  // or another division of the same gradients, followed by those of rows, which
  // are known from CloseRows on.
  size_t num_parts(const Plan& plan, uint32_t ps) const {
    return plan.parts[ps].size() + (rows_ ? rows_->num_parts(ps) : 0);
  }
  // The pieces of one part, in the form in which they are sent.
  std::vector<TensorPiece> PiecesOf(const Plan& plan, uint32_t ps,
                                    uint32_t part) const;

  // Waits until nothing refers to the user's memory any more. Nothing may be
  // taken or sent afterwards.
  void AwaitReturn();

 private:
  // Whether anything of a variable is lent.
  bool Lends(size_t variable) const;
  // The bytes of a range that is sent without encoding.
  Buffer BytesOf(const ElementRange& range) const;
  absl::Status TakeRegion(size_t variable);

  const PushSequence push_;
  const Layout& layout_;
  const Plan& plan_;
  GradientEncoder& encoder_;
  Neighbors* const neighbors_;
  Loan loan_;
  // Indexed by variable.
  std::vector<bool> taken_;
  size_t num_taken_ = 0;
  std::vector<absl::Span<const float>> gradients_;
  // Indexed by variable: shared memory for the whole variable if any of it is
  // lent. It holds the lent ranges, or all of them if the user wrote the
  // gradient here. Null: nothing is lent.
  std::vector<std::shared_ptr<char>> regions_;
  // Indexed by variable: the encoded gradients; empty for those sent without
  // encoding.
  std::vector<GradientEncoder::Encoded> encoded_;
  std::optional<RowGradients> rows_;
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_GRADIENTS_H_
