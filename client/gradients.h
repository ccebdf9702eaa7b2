#ifndef HOLDFAST_CLIENT_GRADIENTS_H_
#define HOLDFAST_CLIENT_GRADIENTS_H_

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/compression.h"
#include "client/layout.h"
#include "client/loan.h"
#include "client/plan.h"
#include "common/ids.h"
#include "common/tensor_piece.h"

namespace holdfast::client {

// The gradients of one push: the user's memory, lent until AwaitReturn, and
// what is sent in its place where the job declares an encoding.
//
// Thread-compatible, but PiecesOf may be called from any thread once its part's
// variables have been taken.
class Gradients {
 public:
  // `layout` and `encoder` must outlive this object.
  Gradients(PushSequence push, const Layout& layout, GradientEncoder* encoder);

  // Whether Take may be called.
  // Errors: INVALID_ARGUMENT, as Push::Add.
  absl::Status Check(size_t variable, absl::Span<const float> gradient) const;
  void Take(size_t variable, absl::Span<const float> gradient);

  // Errors: FAILED_PRECONDITION while a trainable variable is missing.
  absl::Status CheckComplete() const;

  // As it is to be sent.
  std::vector<TensorPiece> PiecesOf(const Plan::Part& part) const;

  // Waits until nobody refers to the user's memory any more. Nothing may be
  // taken or sent afterwards.
  void AwaitReturn() { loan_.AwaitReturn(); }

 private:
  const PushSequence push_;
  const Layout& layout_;
  GradientEncoder& encoder_;
  Loan loan_;
  // By variable.
  std::vector<bool> taken_;
  size_t num_taken_ = 0;
  std::vector<absl::Span<const float>> gradients_;
  // As they are sent; of those that are sent as they are, nothing.
  std::vector<GradientEncoder::Encoded> encoded_;
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_GRADIENTS_H_
