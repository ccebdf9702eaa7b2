#ifndef HOLDFAST_CLIENT_TENSORS_H_
#define HOLDFAST_CLIENT_TENSORS_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/layout.h"
#include "client/plan.h"
#include "proto/shard.pb.h"

namespace holdfast::client {

// Between the user's memory and messages. The only place in the client where
// values are moved. Pure functions.

// Adds the gradients of one part. `gradients`: by variable, whole; those of the
// part must be there. Their bytes are copied.
void AddGradients(const Layout& layout, const Plan::Part& part,
                  absl::Span<const absl::Span<const float>> gradients,
                  proto::PushRequest* request);

// Asks for the values of one part.
void AddRanges(const Layout& layout, const Plan::Part& part,
               proto::PullRequest* request);

// Copies the values of one part to their place in `values`, which has a vector
// of the right size for each variable.
// Errors: INTERNAL when `response` does not hold what was asked for; then
// nothing has been copied.
absl::Status TakeValues(const Layout& layout, const Plan::Part& part,
                        proto::PullResponse* response,
                        absl::Span<std::vector<float>> values);

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_TENSORS_H_
