#ifndef HOLDFAST_CLIENT_PART_SENDER_H_
#define HOLDFAST_CLIENT_PART_SENDER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/call_group.h"
#include "client/gradients.h"
#include "client/push_facts.h"
#include "common/rpc/backoff.h"
#include "proto/shard.pb.h"

namespace holdfast::client {

// docs/protocol/life_of_a_step.md, step 2, or docs/protocol/asynchronous.md,
// A2, as the worker does them: the gradient leaves in the parts of
// Placement::push, each as soon as all its variables were handed in, some of
// them at a time; and every shard acknowledges all of its own. In a job with
// embedding tables parts with rows follow, and none leaves before it is known
// how many there are.
//
// A shard without room refuses a push before it keeps anything of it. One part
// then asks, with pauses, until it is kept, and the others follow: many would
// take the network from those that are to make room.
//
// Where a part is more than a message holds, and cannot be lent to its ps
// (docs/protocol/same_host.md, H7), all of that ps is sent in the parts of
// Placement::sent_push. There are more of them, by which the ps knows that what
// it has of the others is to go.
//
// Thread-safe, by the context's mutex.
class PartSender {
 public:
  // All must outlive this object, and `calls` be cancelled before it goes.
  // `on_end` is called, without locks, when ended() has become true by an
  // answer.
  PartSender(const PushFacts* push, const Gradients* gradients,
             CallGroup* calls, std::function<void()> on_end);

  // Lets parts leave; before it none does.
  void Start();
  bool started() const { return started_; }
  // The gradient of a variable is there.
  void OnHandedIn(size_t variable);
  // There will be no more rows: Gradients::CloseRows.
  void OnRowsClosed();
  // No shard needs anything of the push: no part leaves any more, and what
  // comes of those that have does not matter.
  void Stop();

  // Every shard has acknowledged every part; or the push is decided, or has
  // failed.
  bool ended() const ABSL_SHARED_LOCKS_REQUIRED(push_.context().mutex) {
    return num_unacknowledged_ == 0 || decided();
  }
  // A shard's verdict on the push, whose step has closed or whose worker was
  // shut out.
  proto::Verdict verdict() const
      ABSL_SHARED_LOCKS_REQUIRED(push_.context().mutex) {
    return verdict_;
  }
  const absl::Status& error() const
      ABSL_SHARED_LOCKS_REQUIRED(push_.context().mutex) {
    return error_;
  }
  // What is waited for, and why.
  std::string Missing() const ABSL_SHARED_LOCKS_REQUIRED(push_.context().mutex);

 private:
  // What is between the push and one ps.
  struct Shard {
    // In whose parts it is sent.
    const Plan* plan = nullptr;
    // By part: ranges whose variable has not been handed in.
    std::vector<size_t> missing;
    // Parts that may leave.
    std::deque<uint32_t> ready;
    int in_flight = 0;
    size_t unacknowledged = 0;
    // [H7] A part could not be lent: no other leaves, and when none is on its
    // way the plan is the one that lends nothing.
    bool not_lent = false;
    // Why the ps has kept nothing, as last heard. Empty: it has room.
    std::string refusal;
    // Nothing is sent until a pause after a refusal is over.
    bool pausing = false;
    Backoff backoff;
  };

  // Nothing is on its way to it, and it has been sent nothing by `plan`, or
  // nothing at all.
  void SendBy(uint32_t ps, const Plan& plan)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(push_.context().mutex);
  bool decided() const ABSL_SHARED_LOCKS_REQUIRED(push_.context().mutex) {
    return !error_.ok() || verdict_ != proto::VERDICT_UNSPECIFIED;
  }
  // Sends what may leave to one ps. From the user's thread and from answers.
  void SendReady(uint32_t ps);
  void OnAnswer(uint32_t ps, uint32_t part,
                const absl::StatusOr<proto::PushResponse>& response);
  bool IsOutcome(proto::Verdict verdict) const;

  const PushFacts& push_;
  const Gradients& gradients_;
  CallGroup& calls_;
  const std::function<void()> on_end_;
  // The user's thread's own.
  bool started_ = false;

  // The rows are not all there.
  bool awaits_rows_ ABSL_GUARDED_BY(push_.context().mutex);
  // By variable.
  std::vector<bool> handed_in_ ABSL_GUARDED_BY(push_.context().mutex);
  bool stopped_ ABSL_GUARDED_BY(push_.context().mutex) = false;
  std::vector<Shard> shards_ ABSL_GUARDED_BY(push_.context().mutex);
  size_t num_unacknowledged_ ABSL_GUARDED_BY(push_.context().mutex) = 0;
  proto::Verdict verdict_ ABSL_GUARDED_BY(push_.context().mutex) =
      proto::VERDICT_UNSPECIFIED;
  absl::Status error_ ABSL_GUARDED_BY(push_.context().mutex);
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_PART_SENDER_H_
