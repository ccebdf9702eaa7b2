// SPDX-License-Identifier: Apache-2.0
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

// The worker's side of docs/protocol/life_of_a_step.md, step 2, or
// docs/protocol/asynchronous.md, A2: sends the gradient in the parts of
// Placement::push, each as soon as all its variables were handed in, several at
// a time; every shard acknowledges all of its parts. In a job with embedding
// tables, parts with rows follow, and no part of the push is sent before their
// number is known.
//
// A shard without room refuses a push before it keeps any of it. Then one part
// is retried, with pauses, until the shard keeps it, and the others follow.
// Retrying many parts would take network capacity from other pushes, whose
// completion makes room.
//
// If a part is larger than a message and cannot be lent to its ps
// (docs/protocol/same_host.md, H7), everything for that ps is sent in the parts
// of Placement::sent_push. These are more numerous, by which the ps knows that
// it must discard the parts received so far. A push that was started again with
// other gradients is sent in more parts than before for the same reason, if
// need be with empty ones.
//
// A shard never discards a push that is complete. So that the push can be
// started again, the last part for each ps is not sent before SendAll.
//
// Thread-safe; guarded by the context's mutex.
class PartSender {
 public:
  // All arguments must outlive this object, and `calls` must be cancelled
  // before it is destroyed. `on_end` is called, without locks, when an answer
  // has made ended() true.
  PartSender(const PushFacts* push, const Gradients* gradients,
             CallGroup* calls, std::function<void()> on_end);

  // Starts sending parts, except the last one for each ps; none is sent before.
  void Start();
  bool started() const { return started_; }
  // Sends all parts, each as soon as it is ready. From now on, the push may be
  // complete on a shard.
  void SendAll();
  bool sends_all() const { return sends_all_; }
  // See PushFacts::announced.
  std::vector<size_t> announced() const;
  // Notes that the gradient of a variable has been handed in, so that parts may
  // be ready to be sent.
  void OnHandedIn(size_t variable);
  // Notes that there will be no more rows: Gradients::CloseRows was called.
  void OnRowsClosed();
  // Ends the sending, because no shard needs any of the push: no more parts are
  // sent, and answers to parts already sent are ignored.
  void Stop();

  // Whether every shard has acknowledged every part, or the push is decided or
  // has failed.
  bool ended() const ABSL_SHARED_LOCKS_REQUIRED(push_.context().mutex) {
    return num_unacknowledged_ == 0 || decided();
  }
  // The verdict of a shard that has refused the push because the push's step
  // has closed or its worker was fenced; otherwise VERDICT_UNSPECIFIED.
  proto::Verdict verdict() const
      ABSL_SHARED_LOCKS_REQUIRED(push_.context().mutex) {
    return verdict_;
  }
  const absl::Status& error() const
      ABSL_SHARED_LOCKS_REQUIRED(push_.context().mutex) {
    return error_;
  }
  // Describes what the push waits for, and why.
  std::string Missing() const ABSL_SHARED_LOCKS_REQUIRED(push_.context().mutex);

 private:
  // The state of sending to one ps.
  struct Shard {
    // The plan whose parts are sent.
    const Plan* plan = nullptr;
    // The number of parts: those of the gradient, and then empty ones.
    size_t num_parts = 0;
    // The number of parts that the last request named; 0 if there was none.
    size_t announced = 0;
    // The number of parts that were not sent, or were refused.
    size_t unsent = 0;
    // Indexed by part: the number of ranges whose variable has not been handed
    // in.
    std::vector<size_t> missing;
    // Parts that may be sent.
    std::deque<uint32_t> ready;
    int in_flight = 0;
    size_t unacknowledged = 0;
    // [H7] Whether a part could not be lent. Then no other parts are sent, and
    // once none is in flight, sending starts over with the plan that lends
    // nothing.
    bool not_lent = false;
    // Why the ps has refused the push, as last heard. Empty: it has room.
    std::string refusal;
    // Whether the pause after a refusal is in progress, during which nothing is
    // sent.
    bool pausing = false;
    Backoff backoff;
  };

  // Starts over with the parts of `plan`. Requires that nothing is in flight to
  // the ps, and that no part of `plan` has been sent to it.
  void SendBy(uint32_t ps, const Plan& plan)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(push_.context().mutex);
  bool decided() const ABSL_SHARED_LOCKS_REQUIRED(push_.context().mutex) {
    return !error_.ok() || verdict_ != proto::VERDICT_UNSPECIFIED;
  }
  // Sends the parts for one ps that are ready. Called by the user's thread and
  // by answers.
  void SendReady(uint32_t ps);
  void OnAnswer(uint32_t ps, uint32_t part,
                const absl::StatusOr<proto::PushResponse>& response);
  bool IsOutcome(proto::Verdict verdict) const;

  const PushFacts& push_;
  const Gradients& gradients_;
  CallGroup& calls_;
  const std::function<void()> on_end_;
  // Used only by the user's thread, or while that waits for an answer.
  bool started_ = false;
  bool sends_all_ = false;

  // Whether rows may still be handed in.
  bool awaits_rows_ ABSL_GUARDED_BY(push_.context().mutex);
  // Indexed by variable.
  std::vector<bool> handed_in_ ABSL_GUARDED_BY(push_.context().mutex);
  bool stopped_ ABSL_GUARDED_BY(push_.context().mutex) = false;
  bool holds_back_ ABSL_GUARDED_BY(push_.context().mutex) = true;
  std::vector<Shard> shards_ ABSL_GUARDED_BY(push_.context().mutex);
  size_t num_unacknowledged_ ABSL_GUARDED_BY(push_.context().mutex) = 0;
  proto::Verdict verdict_ ABSL_GUARDED_BY(push_.context().mutex) =
      proto::VERDICT_UNSPECIFIED;
  absl::Status error_ ABSL_GUARDED_BY(push_.context().mutex);
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_PART_SENDER_H_
