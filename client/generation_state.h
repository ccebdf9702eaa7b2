// SPDX-License-Identifier: Apache-2.0
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

// The placement of the variables, and how their values are spread over
// messages.
struct Placement {
  bool asynchronous() const {
    return layout.declaration().consistency().has_asynchronous();
  }
  // Whether a ps has anything to train. In a job with tables every ps does,
  // since it may receive rows.
  bool Trains(uint32_t ps) const {
    return !push.parts[ps].empty() || !layout.tables().empty();
  }
  // The version of all values, given the version of each ps's values: the
  // least. In an asynchronous job a ps without anything to train does not
  // count, because its values are the same at every version [P4].
  GlobalStep VersionOf(const std::vector<GlobalStep>& versions) const;

  // Whether parts of `plan` that are larger than a message, and cannot be lent
  // to the ps at the moment, can be sent in the parts of `sent` instead. True
  // if `sent`, which lends nothing, has more parts for the ps.
  static bool MayBeSent(uint32_t ps, const Plan& plan, const Plan& sent) {
    return sent.parts[ps].size() > plan.parts[ps].size();
  }

  Layout layout;
  Plan push;
  Plan pull;
  // Plans like `push` and `pull`, but with nothing lent. Used if a part of
  // `push` or `pull` is larger than a message and cannot be lent at the moment.
  Plan sent_push;
  Plan sent_pull;
};

// A client's state for one generation of the job (docs/protocol/recovery.md,
// G6). Replaced as a whole after a roll-back. Handles keep the state that they
// were made in, and each of their calls keeps its sender, so a retry never
// carries anything from one generation into another.
struct GenerationState {
  GenerationState(std::shared_ptr<Context> context, const proto::Sender& sender,
                  Placement placement)
      : context(std::move(context)),
        sender(std::make_shared<const proto::Sender>(sender)),
        placement(std::move(placement)),
        encoder(this->placement.layout, this->placement.push),
        background(this->context, this->sender),
        tickets(this->context, &sequences, this->sender) {}

  // Why nothing more can be done in this generation; OK while it is current.
  absl::Status WhyOver() const ABSL_SHARED_LOCKS_REQUIRED(context->mutex) {
    return context->WhyOver(sender.get());
  }

  const std::shared_ptr<Context> context;
  // The sender of all calls in this generation.
  const std::shared_ptr<const proto::Sender> sender;
  const Placement placement;
  Sequences sequences ABSL_GUARDED_BY(context->mutex);
  // The encoder has a lock of its own. No other lock is taken while it is held.
  GradientEncoder encoder;
  // Makes the calls that no handle waits for.
  CallGroup background;
  Tickets tickets;
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_GENERATION_STATE_H_
