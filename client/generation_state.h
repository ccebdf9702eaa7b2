#ifndef HOLDFAST_CLIENT_GENERATION_STATE_H_
#define HOLDFAST_CLIENT_GENERATION_STATE_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "client/call_group.h"
#include "client/compression.h"
#include "client/context.h"
#include "client/layout.h"
#include "client/plan.h"
#include "client/sequences.h"
#include "client/tickets.h"
#include "common/job/ids.h"
#include "proto/cluster.pb.h"

namespace holdfast::client {

// Where the variables are, and how their values are spread over messages.
struct Placement {
  bool asynchronous() const {
    return layout.declaration().consistency().has_asynchronous();
  }
  // Whether a ps has anything to train: in a job with tables any row may come
  // to be there.
  bool Trains(uint32_t ps) const {
    return !push.parts[ps].empty() || !layout.tables().empty();
  }
  // The version of all values, where those of each ps are of these: the least.
  // A ps without anything to train does not count in an asynchronous job: its
  // values are the same at every version [P4].
  GlobalStep VersionOf(const std::vector<GlobalStep>& versions) const;

  // Whether parts that cannot be lent to a ps, and are more than a message
  // holds, can be sent: then there are more of them.
  static bool MayBeSent(uint32_t ps, const Plan& plan, const Plan& sent) {
    return sent.parts[ps].size() > plan.parts[ps].size();
  }

  Layout layout;
  Plan push;
  Plan pull;
  // The same, but that nothing counts as lent: for what is more than a message
  // holds, and cannot be lent for the moment.
  Plan sent_push;
  Plan sent_pull;
};

// What a client has of one generation of the job (docs/protocol/recovery.md,
// G6). Replaced as a whole when the job has gone back; handles keep the one
// that they were made in, and so does each of their calls its sender. Nothing
// of one generation gets into another by being sent again.
struct GenerationState {
  GenerationState(std::shared_ptr<Context> context, const proto::Sender& sender,
                  Placement placement)
      : context(std::move(context)),
        sender(std::make_shared<const proto::Sender>(sender)),
        placement(std::move(placement)),
        encoder(this->placement.layout, this->placement.push),
        background(this->context, this->sender),
        tickets(this->context, &sequences, this->sender) {}

  // Why nothing more can be done in this generation. OK while it can.
  absl::Status WhyOver() const ABSL_SHARED_LOCKS_REQUIRED(context->mutex) {
    return context->WhyOver(sender.get());
  }

  const std::shared_ptr<Context> context;
  // Who works in it.
  const std::shared_ptr<const proto::Sender> sender;
  const Placement placement;
  Sequences sequences ABSL_GUARDED_BY(context->mutex);
  // Has a lock of its own, under which no other is taken.
  GradientEncoder encoder;
  // For calls that nobody waits for.
  CallGroup background;
  Tickets tickets;
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_GENERATION_STATE_H_
