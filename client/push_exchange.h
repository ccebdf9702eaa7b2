// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLIENT_PUSH_EXCHANGE_H_
#define HOLDFAST_CLIENT_PUSH_EXCHANGE_H_

#include <functional>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/call_group.h"
#include "client/cluster.h"
#include "client/follow_up.h"
#include "client/gradients.h"
#include "client/push_facts.h"
#include "client/row_reads.h"
#include "common/rpc/backoff.h"
#include "proto/shard.pb.h"

namespace holdfast::client {

// A push, its follow-up and a pull in one call:
// docs/protocol/life_of_a_step.md, F. For jobs with one ps in which everything
// fits in one message.
//
// Thread-safe; guarded by the context's mutex.
class PushExchange {
 public:
  // The result of the call. If the response has no verdict, the shard holds the
  // push, and the verdict and the values must be requested separately.
  struct Answer {
    proto::PushPullResponse response;
    // Whether the pulled values have been written to `next`.
    bool brought_next = false;
  };
  // Called once, without locks.
  using OnAnswer = std::function<void(const absl::StatusOr<Answer>&)>;

  // Whether each push and each pull under this placement is one message to one
  // ps, apart from rows of embedding tables.
  static bool Fits(const Placement& placement);

  // All arguments must outlive this object, and `calls` must be cancelled
  // before it is destroyed.
  PushExchange(const PushFacts* push, const Gradients* gradients,
               const FollowUp* follow_up, CallGroup* calls, OnAnswer on_answer);

  // Whether the pushed rows, if any, and the rows that `next` wants fit in the
  // message together with the variables, which count with their full size even
  // if they could be lent. Must be called after Gradients::CloseRows.
  bool FitsRows(const Contribution& contribution, Parameters* next) const;
  // Makes the call. Must be called once. `next`: null if nothing is pulled.
  void Start(const Contribution& contribution, Parameters* next);

  // Describes what the call waits for, or why the shard has refused the push,
  // as last heard.
  std::string Missing() const
      ABSL_SHARED_LOCKS_REQUIRED(push_.context().mutex) {
    return refusal_.empty() ? push_.MissingVerdict() : refusal_;
  }

 private:
  bool HasRowReads() const {
    return row_reads_.has_value() && row_reads_->num_parts(0) > 0;
  }
  // Sends the call; repeated after each refusal for lack of room.
  void Ask();
  void OnResponse(
      const absl::StatusOr<WithTensors<proto::PushPullResponse>>& response);
  // Returns whether the values have arrived, and if so, writes them to `next`.
  absl::StatusOr<bool> TakeNext(
      const WithTensors<proto::PushPullResponse>& response);

  const PushFacts& push_;
  const Gradients& gradients_;
  const FollowUp& follow_up_;
  CallGroup& calls_;
  const OnAnswer on_answer_;
  // The arguments of Start.
  Contribution contribution_;
  Parameters* next_ = nullptr;
  // Set in a job with tables if something is pulled.
  std::optional<RowReads> row_reads_;

  std::string refusal_ ABSL_GUARDED_BY(push_.context().mutex);
  Backoff backoff_;
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_PUSH_EXCHANGE_H_
