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

// Makes a push count that every shard holds, or that has no examples: in
// synchronous jobs by offering it to the step, in asynchronous ones by applying
// it.
//
// Thread-safe, by the context's mutex.
class FollowUp {
 public:
  // Called once, without locks.
  using OnOutcome =
      std::function<void(const absl::StatusOr<Cluster::Outcome>&)>;

  virtual ~FollowUp() = default;

  // Whether the push may be contributed this way. Called before the functions
  // below.
  virtual absl::Status Check(const Contribution& contribution) const = 0;
  // Asks for the verdict until it arrives.
  virtual void Start(const Contribution& contribution) = 0;
  // Used instead of Start if there is only one shard and it is asked along with
  // the push itself: fill in the request, and take the verdict from the
  // response.
  virtual void FillIn(const Contribution& contribution,
                      proto::PushPullRequest* request) const = 0;
  virtual void Take(const Contribution& contribution,
                    const proto::PushPullResponse& response) = 0;

  // The version that the caller reads next, and whether it will arrive after a
  // given verdict: a worker that was fenced need not wait for it.
  virtual GlobalStep next_version() const = 0;
  virtual bool IsFollowed(proto::Verdict verdict) const = 0;

  // What is waited for, and why. With the lock held.
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

// Implements docs/protocol/life_of_a_step.md, step 3, and the wait for step 6.
// `push` and `calls`, to which its calls belong, must outlive the object, and
// `calls` must be cancelled before it is destroyed.
std::unique_ptr<FollowUp> MakeOffer(const PushFacts* push,
                                    const CallGroup* calls,
                                    FollowUp::OnOutcome on_outcome);

// Implements docs/protocol/asynchronous.md, A3: sends Apply to every shard that
// has anything to train, again until each has a verdict. When all have answered
// ACCEPTED, the ticket is spent.
std::unique_ptr<FollowUp> MakeApplication(const PushFacts* push,
                                          const CallGroup* calls,
                                          FollowUp::OnOutcome on_outcome);

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_FOLLOW_UP_H_
