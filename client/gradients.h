#ifndef HOLDFAST_CLIENT_GRADIENTS_H_
#define HOLDFAST_CLIENT_GRADIENTS_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/compression.h"
#include "client/layout.h"
#include "client/loan.h"
#include "client/neighbors.h"
#include "client/plan.h"
#include "common/buffer.h"
#include "common/ids.h"
#include "common/tensor_piece.h"

namespace holdfast::client {

// The gradients of one push: the user's memory, lent until AwaitReturn, and
// what is sent in its place: where the job declares an encoding, and where a ps
// of this host reads the gradient from our regions.
//
// Thread-compatible, but PiecesOf may be called from any thread once its part's
// variables have been taken.
class Gradients {
 public:
  // `layout`, `plan`, by which the gradients are sent, `encoder` and
  // `neighbors`, which is null where nothing is lent, must outlive this object.
  Gradients(PushSequence push, const Layout& layout, const Plan& plan,
            GradientEncoder* encoder, Neighbors* neighbors);

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

  // As it is to be sent.
  std::vector<TensorPiece> PiecesOf(const Plan::Part& part) const;

  // Waits until nobody refers to the user's memory any more. Nothing may be
  // taken or sent afterwards.
  void AwaitReturn();

 private:
  // Whether anything of a variable is lent.
  bool Lends(size_t variable) const;
  // Where a stretch that is sent as it is lies.
  Buffer BytesOf(const Stretch& stretch) const;
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
  // For all of a variable of which something is lent: those stretches are here,
  // all of them where the user has written here. Null: of no variable.
  std::vector<std::shared_ptr<char>> regions_;
  // As they are sent; of those that are sent as they are, nothing.
  std::vector<GradientEncoder::Encoded> encoded_;
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_GRADIENTS_H_
