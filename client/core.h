#ifndef HOLDFAST_CLIENT_CORE_H_
#define HOLDFAST_CLIENT_CORE_H_

#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/call_group.h"
#include "client/compression.h"
#include "client/context.h"
#include "client/layout.h"
#include "client/plan.h"
#include "client/sequences.h"
#include "client/tickets.h"
#include "client/wire.h"
#include "proto/cluster.pb.h"

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

// What a client has of one generation of the job (docs/recovery.md, G6).
// Replaced as a whole when the job has gone back; handles keep the one that
// they were made in, and so does each of their calls its sender. Nothing of one
// generation gets into another by being sent again.
struct Generation {
  // `wire` must outlive this object.
  Generation(std::shared_ptr<Context> context, Wire* wire,
             const proto::Sender& sender, Placement placement)
      : context(std::move(context)),
        wire(wire),
        sender(sender),
        placement(std::move(placement)),
        encoder(this->placement.layout, this->placement.push),
        background(this->context, sender),
        tickets(this->context, wire, &sequences, sender) {}

  // Why nothing more can be done in this generation. OK while it can.
  absl::Status WhyOver() const ABSL_SHARED_LOCKS_REQUIRED(context->mutex) {
    return context->WhyOver(sender);
  }

  const std::shared_ptr<Context> context;
  Wire* const wire;
  const proto::Sender sender;
  const Placement placement;
  Sequences sequences ABSL_GUARDED_BY(context->mutex);
  // Has a lock of its own, under which no other is taken.
  GradientEncoder encoder;
  // For calls that nobody waits for.
  CallGroup background;
  Tickets tickets;
};

// What starts handles for a Cluster, which owns it.
struct Core {
  // The generation to work in.
  // Errors: FAILED_PRECONDITION before AwaitVariables; Generation::WhyOver.
  absl::StatusOr<std::shared_ptr<Generation>> Ready() const {
    absl::MutexLock lock(&context->mutex);
    if (generation == nullptr) {
      return absl::FailedPreconditionError("AwaitVariables was not called");
    }
    if (absl::Status over = generation->WhyOver(); !over.ok()) return over;
    return generation;
  }
  // The same, for what a caller that only reads may not do:
  // FAILED_PRECONDITION.
  absl::StatusOr<std::shared_ptr<Generation>> ReadyToWork() const {
    if (absl::Status status = CheckMember(); !status.ok()) return status;
    return Ready();
  }
  absl::Status CheckMember() const {
    if (member) return absl::OkStatus();
    return absl::FailedPreconditionError(
        "this client only reads: it is no worker or chief of the cluster");
  }

  std::shared_ptr<Context> context;
  std::unique_ptr<Wire> wire;
  // Whether the caller has registered.
  bool member = false;

  // Null before AwaitVariables.
  std::shared_ptr<Generation> generation ABSL_GUARDED_BY(context->mutex);
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_CORE_H_
