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
// what is sent in its place: where the job declares an encoding, and where a ps
// of this host reads the gradient from our regions. In a job with embedding
// tables also those of rows.
//
// Thread-compatible, but PiecesOf may be called from any thread once its part's
// variables have been taken, in a job with tables after CloseRows.
class Gradients {
 public:
  // `layout`, `plan`, by which the gradients are sent, `encoder` and
  // `neighbors`, which is null where nothing is lent, must outlive this object.
  // `step`: on whose parameters they are computed, by ps 0.
  Gradients(PushSequence push, const Layout& layout, const Plan& plan,
            GradientEncoder* encoder, Neighbors* neighbors,
            GlobalStep step = GlobalStep(0));

  // Whether Take may be called.
  // Errors: INVALID_ARGUMENT, as Push::Add.
  absl::Status Check(size_t variable, absl::Span<const float> gradient) const;
  // Errors: RESOURCE_EXHAUSTED, UNAVAILABLE when there is no memory for what is
  // lent; nothing was taken.
  absl::Status Take(size_t variable, absl::Span<const float> gradient);
  // As Push::Memory.
  absl::Span<float> Memory(size_t variable);

  // Errors: FAILED_PRECONDITION while a trainable variable is missing.
  absl::Status CheckComplete() const;

  // Whether TakeRows may be called.
  // Errors: those of Push::AddRows.
  absl::Status CheckRows(size_t table, absl::Span<const uint64_t> ids,
                         absl::Span<const float> gradients) const;
  // Whether there are those of all tables.
  bool TakeRows(size_t table, absl::Span<const uint64_t> ids,
                absl::Span<const float> gradients);
  // Of tables that were not taken there are no rows. False: there is nothing to
  // close, or it was called before.
  bool CloseRows() { return rows_.has_value() && rows_->Close(); }
  // Null in a job without tables.
  const RowGradients* rows() const { return rows_ ? &*rows_ : nullptr; }

  // The parts for a ps: those by `plan`, which is that of the constructor or
  // cuts the same otherwise, then those of rows, from CloseRows on.
  size_t num_parts(const Plan& plan, uint32_t ps) const {
    return plan.parts[ps].size() + (rows_ ? rows_->num_parts(ps) : 0);
  }
  // One of them, as it is to be sent.
  std::vector<TensorPiece> PiecesOf(const Plan& plan, uint32_t ps,
                                    uint32_t part) const;

  // Waits until nobody refers to the user's memory any more. Nothing may be
  // taken or sent afterwards.
  void AwaitReturn();

 private:
  // Whether anything of a variable is lent.
  bool Lends(size_t variable) const;
  // Where a range that is sent as it is lies.
  Buffer BytesOf(const ElementRange& range) const;
  absl::Status TakeRegion(size_t variable);

  const PushSequence push_;
  const Layout& layout_;
  const Plan& plan_;
  GradientEncoder& encoder_;
  Neighbors* const neighbors_;
  Loan loan_;
  // By variable.
  std::vector<bool> taken_;
  size_t num_taken_ = 0;
  std::vector<absl::Span<const float>> gradients_;
  // For all of a variable of which something is lent: those ranges are here,
  // all of them where the user has written here. Null: of no variable.
  std::vector<std::shared_ptr<char>> regions_;
  // As they are sent; of those that are sent as they are, nothing.
  std::vector<GradientEncoder::Encoded> encoded_;
  std::optional<RowGradients> rows_;
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_GRADIENTS_H_
