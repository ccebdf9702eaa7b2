// SPDX-License-Identifier: Apache-2.0
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

// Moves tensors between the user's memory and messages. The only place in the
// client where values are moved. Pure functions.

// Returns the gradients of one part, as pieces of a message. `encoded` contains
// the encoded gradients, indexed by variable. Ranges that it does not contain
// are sent without encoding, from the buffers that `exact` returns.
std::vector<TensorPiece> PiecesOf(
    const Layout& layout, const Plan::Part& part,
    absl::Span<const GradientEncoder::Encoded> encoded,
    absl::FunctionRef<Buffer(const ElementRange&)> exact);

// How values are requested.
enum class Reading {
  // Without encoding.
  kExact,
  // In the encoding declared for each variable.
  kAsDeclared,
};

// Adds the values of one part to the `ranges` of a request.
void AddRanges(const Layout& layout, const Plan::Part& part, Reading reading,
               google::protobuf::RepeatedPtrField<proto::ReadRange>* ranges);

// Must be called before the values of `plan` are taken: makes `into` release
// the values that it keeps in place, and makes room for each variable that
// arrives in several ranges. TakeValues makes room for a variable that arrives
// whole, if its values cannot be kept in place.
void Prepare(const Layout& layout, const Plan& plan, Parameters* into);

// Takes the values of one part of `plan` into `into`. Values stay in place if a
// whole variable is lent exactly and in one piece, `leave` (the permission of
// Neighbors::Keep, which is then kept with the values) is not null, and the
// caller of the pull has not provided memory for the variable. All other values
// are copied.
// Several threads may take different parts at the same time.
// Errors: INTERNAL if `pieces` are not what was requested; then nothing is
// taken.
absl::Status TakeValues(const Layout& layout, const Plan& plan,
                        const Plan::Part& part, Reading reading,
                        absl::Span<const TensorPiece> pieces,
                        const std::shared_ptr<const void>& leave,
                        Parameters* into);

// The loss scale of an answer; 1 if the job has none.
template <typename Message>
float LossScaleOf(const Message& message) {
  return message.loss_scale() == 0 ? 1 : message.loss_scale();
}

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_TENSORS_H_
