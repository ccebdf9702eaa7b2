#ifndef HOLDFAST_CLIENT_CORE_H_
#define HOLDFAST_CLIENT_CORE_H_

#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/call_group.h"
#include "client/context.h"
#include "client/layout.h"
#include "client/plan.h"
#include "client/sequences.h"
#include "client/tickets.h"
#include "client/wire.h"

namespace holdfast::client {

// Where the variables are, and how their values are spread over messages.
struct Placement {
  bool asynchronous() const {
    return layout.declaration().consistency().has_asynchronous();
  }

  Layout layout;
  Plan push;
  Plan pull;
};

// What handles need of their Cluster, which owns it and outlives them.
struct Core {
  // The placement, for a call that moves tensors.
  // Errors: FAILED_PRECONDITION before AwaitVariables.
  absl::StatusOr<const Placement*> Ready() const {
    absl::MutexLock lock(&context->mutex);
    if (placement == nullptr) {
      return absl::FailedPreconditionError("AwaitVariables was not called");
    }
    return placement.get();
  }
  // Errors: FAILED_PRECONDITION for a caller that only reads.
  absl::Status CheckMember() const {
    if (member) return absl::OkStatus();
    return absl::FailedPreconditionError(
        "this client only reads: it is no worker or chief of the cluster");
  }

  std::shared_ptr<Context> context;
  std::unique_ptr<Wire> wire;
  // For calls that nobody waits for.
  std::unique_ptr<CallGroup> background;
  std::unique_ptr<Tickets> tickets;
  // Whether the caller has registered.
  bool member = false;

  // Set once.
  std::unique_ptr<const Placement> placement ABSL_GUARDED_BY(context->mutex);
  Sequences sequences ABSL_GUARDED_BY(context->mutex);
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_CORE_H_
