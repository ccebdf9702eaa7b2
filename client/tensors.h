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

// The gradients of one part. `encoded`: indexed by variable; encoded gradients
// found there are sent. All others are sent without encoding, from the buffers
// that `exact` returns.
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

// Asks for the values of one part.
void AddRanges(const Layout& layout, const Plan::Part& part, Reading reading,
               google::protobuf::RepeatedPtrField<proto::ReadRange>* ranges);

// Must be called before the values of `plan` are taken: makes `into` release
// what it keeps, and makes room for each variable that comes in several ranges.
// Variables that come whole get room only if they cannot be kept.
void Prepare(const Layout& layout, const Plan& plan, Parameters* into);

// Takes the values of one part of `plan` into `into`. The values of a variable
// that is lent whole, exact and in one piece stay in place if there is `leave`
// to keep them (Neighbors::Keep), which is kept with them, and the caller of
// the pull has not provided memory for them. All others are copied.
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
