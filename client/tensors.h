#ifndef HOLDFAST_CLIENT_TENSORS_H_
#define HOLDFAST_CLIENT_TENSORS_H_

#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/compression.h"
#include "client/layout.h"
#include "client/parameters.h"
#include "client/plan.h"
#include "common/tensor/buffer.h"
#include "common/tensor/tensor_piece.h"
#include "proto/shard.pb.h"

namespace holdfast::client {

// Between the user's memory and messages. The only place in the client where
// values are moved. Pure functions.

// The gradients of one part. `encoded`: by variable; what stands there is sent.
// The others are sent as they are, from where `exact` says that they lie.
std::vector<TensorPiece> PiecesOf(
    const Layout& layout, const Plan::Part& part,
    absl::Span<const GradientEncoder::Encoded> encoded,
    absl::FunctionRef<Buffer(const ElementRange&)> exact);

// How values are asked for.
enum class Reading {
  // As they are.
  kExact,
  // In the encoding declared for each variable.
  kAsDeclared,
};

// Asks for the values of one part.
void AddRanges(const Layout& layout, const Plan::Part& part, Reading reading,
               google::protobuf::RepeatedPtrField<proto::ReadRange>* ranges);

// Before the values of `plan` are taken: has `into` let go of what it keeps,
// and gives it room for each variable that comes in several ranges. Those
// that come whole get it when they cannot be kept.
void Prepare(const Layout& layout, const Plan& plan, Parameters* into);

// Brings the values of one part of `plan` into `into`. Those of a variable that
// is lent whole, exact and in one piece, stay where they lie, unless the caller
// of the pull has given memory for them, if there is `leave` to keep them
// (Neighbors::Keep), which is kept with them. All others are copied.
// Several threads may take other parts at the same time.
// Errors: INTERNAL when `pieces` are not what was asked for; then nothing has
// been taken.
absl::Status TakeValues(const Layout& layout, const Plan& plan,
                        const Plan::Part& part, Reading reading,
                        absl::Span<const TensorPiece> pieces,
                        const std::shared_ptr<const void>& leave,
                        Parameters* into);

// Of an answer that may have one: 1 where the job has none.
template <typename Message>
float LossScaleOf(const Message& message) {
  return message.loss_scale() == 0 ? 1 : message.loss_scale();
}

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_TENSORS_H_
