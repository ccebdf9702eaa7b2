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

// The gradients of one push: the user's memory, lent until AwaitReturn; the
// encoded gradients that are sent instead if the job declares an encoding; and
// the shared memory from which a ps of this host reads gradients. In a job with
// embedding tables, also the gradients of rows.
//
// Thread-compatible, except that PiecesOf may be called from any thread once
// its part's variables have been taken; in a job with tables, only after
// CloseRows.
class Gradients {
 public:
  // `plan`: the plan by which the gradients are sent. `neighbors`: null if
  // nothing is lent. `step`: the version of ps 0's values on which the
  // gradients are computed. `layout`, `plan`, `encoder` and `neighbors` must
  // outlive this object.
  Gradients(PushSequence push, const Layout& layout, const Plan& plan,
            GradientEncoder* encoder, Neighbors* neighbors,
            GlobalStep step = GlobalStep(0));

  // Returns OK if Take may be called with these arguments.
  // Errors: INVALID_ARGUMENT, as for Push::Add.
  absl::Status Check(size_t variable, absl::Span<const float> gradient) const;
  // Takes the gradient of one variable, for which Check must have returned OK.
  // Variables without elements count as taken from the start.
  // Errors: RESOURCE_EXHAUSTED or UNAVAILABLE if there is no shared memory for
  // the ranges that are lent; then the gradient is not taken.
  absl::Status Take(size_t variable, absl::Span<const float> gradient);
  // See Push::Memory.
  absl::Span<float> Memory(size_t variable);

  // Returns OK if the gradients of all trainable variables have been taken.
  // Errors: FAILED_PRECONDITION if one is missing.
  absl::Status CheckComplete() const;

  // Returns OK if TakeRows may be called with these arguments.
  // Errors: those of Push::AddRows.
  absl::Status CheckRows(size_t table, absl::Span<const uint64_t> ids,
                         absl::Span<const float> gradients) const;
  // Takes the gradients of one table's rows. Returns whether the rows of all
  // tables have been taken.
  bool TakeRows(size_t table, absl::Span<const uint64_t> ids,
                absl::Span<const float> gradients);
  // Declares that tables not taken so far have no rows. Returns false if the
  // job has no tables, or if CloseRows was called before.
  bool CloseRows() { return rows_.has_value() && rows_->Close(); }
  // Null in a job without tables.
  const RowGradients* rows() const { return rows_ ? &*rows_ : nullptr; }

  // The number of parts for a ps: the parts of `plan`, which is the
  // constructor's plan or another division of the same gradients, and then the
  // parts with rows, whose number is known once CloseRows was called.
  size_t num_parts(const Plan& plan, uint32_t ps) const {
    return plan.parts[ps].size() + (rows_ ? rows_->num_parts(ps) : 0);
  }
  // The pieces of one part, in the form in which they are sent; none if there
  // is no such part.
  std::vector<TensorPiece> PiecesOf(const Plan& plan, uint32_t ps,
                                    uint32_t part) const;

  // Waits until nothing refers to the user's memory any more. Nothing may be
  // taken or sent afterwards.
  void AwaitReturn();

 private:
  // Whether a range of the variable is lent to a ps.
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
  // Indexed by variable: shared memory for the whole gradient if a range of the
  // variable is lent, otherwise null. It contains the lent ranges of the
  // gradient, or the whole gradient if the user has written it there (see
  // Memory).
  std::vector<std::shared_ptr<char>> regions_;
  // Indexed by variable: the encoded gradients; empty for those sent without
  // encoding.
  std::vector<GradientEncoder::Encoded> encoded_;
  std::optional<RowGradients> rows_;
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_GRADIENTS_H_
