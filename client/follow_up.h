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

// What makes a push count that every shard holds, or that has no examples: in
// synchronous jobs its offer to the step, in asynchronous ones its application.
//
// Thread-safe, by the context's mutex.
class FollowUp {
 public:
  // Told once, without locks.
  using OnOutcome =
      std::function<void(const absl::StatusOr<Cluster::Outcome>&)>;

  virtual ~FollowUp() = default;

  // Whether the push may be contributed so; before all that follows.
  virtual absl::Status Check(const Contribution& contribution) const = 0;
  // Asks for the verdict until it is there.
  virtual void Start(const Contribution& contribution) = 0;
  // In place of it, where the only shard is asked with the push itself: what it
  // is asked, and the verdict that it has told.
  virtual void FillIn(const Contribution& contribution,
                      proto::PushPullRequest* request) const = 0;
  virtual void Take(const Contribution& contribution,
                    const proto::PushPullResponse& response) = 0;

  // The version that the caller reads next, and whether it will come after a
  // verdict: a worker that was shut out need not wait for it.
  virtual GlobalStep next_version() const = 0;
  virtual bool IsFollowed(proto::Verdict verdict) const = 0;

  // What is waited for, and why. With the lock held.
  virtual std::string Missing() const = 0;
};

// Fills in the fields of that name of a message that tells of a push.
template <typename Message>
void SetLoss(const Contribution& contribution, Message* message) {
  if (contribution.loss.has_value()) {
    message->set_loss(*contribution.loss);
  } else if (contribution.examples > 0) {
    message->set_loss_unknown(true);
  }
}

// docs/protocol/life_of_a_step.md, step 3, and the wait for step 6. `push` and
// `calls`, to which its calls belong, must outlive the object, and `calls` be
// cancelled before it goes.
std::unique_ptr<FollowUp> MakeOffer(const PushFacts* push,
                                    const CallGroup* calls,
                                    FollowUp::OnOutcome on_outcome);

// docs/protocol/asynchronous.md, A3: Apply to every shard that pushes bring
// something, asked again until each has a verdict. When all have said ACCEPTED,
// the ticket is spent.
std::unique_ptr<FollowUp> MakeApplication(const PushFacts* push,
                                          const CallGroup* calls,
                                          FollowUp::OnOutcome on_outcome);

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_FOLLOW_UP_H_
