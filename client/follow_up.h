// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLIENT_FOLLOW_UP_H_
#define HOLDFAST_CLIENT_FOLLOW_UP_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/call_group.h"
#include "client/cluster.h"
#include "client/push_facts.h"
#include "common/job/ids.h"
#include "proto/cluster.pb.h"
#include "proto/shard.pb.h"

namespace holdfast::client {

// Makes a push count. Every shard must hold the push, unless it has no
// examples. In synchronous jobs the push is offered to its step, in
// asynchronous ones it is applied on every shard.
//
// Thread-safe, by the context's mutex.
class FollowUp {
 public:
  // Receives what became of the push. Called once, without locks.
  using OnOutcome =
      std::function<void(const absl::StatusOr<Cluster::Outcome>&)>;

  virtual ~FollowUp() = default;

  // Returns OK if the push may be contributed as `contribution` says. Called
  // before the functions below.
  virtual absl::Status Check(const Contribution& contribution) const = 0;
  // Asks for the verdict until it arrives.
  virtual void Start(const Contribution& contribution) = 0;
  // Used instead of Start if there is only one shard, and the call that sends
  // the push also asks for the verdict: FillIn adds the question to the
  // request, and Take takes the verdict from the response.
  virtual void FillIn(const Contribution& contribution,
                      proto::PushPullRequest* request) const = 0;
  virtual void Take(const Contribution& contribution,
                    const proto::PushPullResponse& response) = 0;

  // next_version returns the version that the caller reads next. IsFollowed
  // returns whether that version will arrive after the given verdict: a worker
  // that was fenced need not wait for it.
  virtual GlobalStep next_version() const = 0;
  virtual bool IsFollowed(proto::Verdict verdict) const = 0;

  // Describes what the push waits for, and why. Must be called with the lock
  // held.
  virtual std::string Missing() const = 0;
};

// Fills in the loss fields of a message that describes a push.
template <typename Message>
void SetLoss(const Contribution& contribution, Message* message) {
  if (contribution.loss.has_value()) {
    message->set_loss(*contribution.loss);
  } else if (contribution.examples > 0) {
    message->set_loss_unknown(true);
  }
}

// Returns the FollowUp of a synchronous push, which implements
// docs/protocol/life_of_a_step.md, step 3, and the wait for step 6. It makes
// its calls in `calls`. `push` and `calls` must outlive the FollowUp, and
// `calls` must be cancelled before it is destroyed.
std::unique_ptr<FollowUp> MakeOffer(const PushFacts* push,
                                    const CallGroup* calls,
                                    FollowUp::OnOutcome on_outcome);

// Returns the FollowUp of an asynchronous push, which implements
// docs/protocol/asynchronous.md, A3: it sends Apply to every shard that has
// anything to train, repeatedly until each shard has given a verdict. When all
// verdicts are ACCEPTED, the ticket is spent.
std::unique_ptr<FollowUp> MakeApplication(const PushFacts* push,
                                          const CallGroup* calls,
                                          FollowUp::OnOutcome on_outcome);

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_FOLLOW_UP_H_
