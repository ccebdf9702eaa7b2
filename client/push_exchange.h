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
// docs/protocol/life_of_a_step.md, F. For jobs with one ps, where all fits in
// one message.
//
// Thread-safe, by the context's mutex.
class PushExchange {
 public:
  // What has come of it: the verdict and what else was told; or without one:
  // the shard holds the push, and the rest is to be asked for by itself.
  struct Answer {
    proto::PushPullResponse response;
    // The values are in their place.
    bool brought_next = false;
  };
  // Told once, without locks.
  using OnAnswer = std::function<void(const absl::StatusOr<Answer>&)>;

  // Whether each push of these and each pull are one message to one ps, apart
  // from rows of embedding tables.
  static bool Fits(const Placement& placement);

  // All must outlive this object, and `calls` be cancelled before it goes.
  PushExchange(const PushFacts* push, const Gradients* gradients,
               const FollowUp* follow_up, CallGroup* calls, OnAnswer on_answer);

  // Whether the rows that are pushed, if any, and those that `next` wants fit
  // beside the variables, none of which then counts as lent. After
  // Gradients::CloseRows.
  bool FitsRows(const Contribution& contribution, Parameters* next) const;
  // Called once. `next`: null where nothing is pulled.
  void Start(const Contribution& contribution, Parameters* next);

  // What is waited for, or why the shard has kept nothing, as last heard.
  std::string Missing() const
      ABSL_SHARED_LOCKS_REQUIRED(push_.context().mutex) {
    return refusal_.empty() ? push_.MissingVerdict() : refusal_;
  }

 private:
  bool HasRowReads() const {
    return row_reads_.has_value() && row_reads_->num_parts(0) > 0;
  }
  // Again after each refusal, for lack of room.
  void Ask();
  void OnResponse(
      const absl::StatusOr<WithTensors<proto::PushPullResponse>>& response);
  // Whether the values have come; puts them in their place.
  absl::StatusOr<bool> TakeNext(
      const WithTensors<proto::PushPullResponse>& response);

  const PushFacts& push_;
  const Gradients& gradients_;
  const FollowUp& follow_up_;
  CallGroup& calls_;
  const OnAnswer on_answer_;
  // Set by Start.
  Contribution contribution_;
  Parameters* next_ = nullptr;
  // In a job with tables, where something is pulled.
  std::optional<RowReads> row_reads_;

  std::string refusal_ ABSL_GUARDED_BY(push_.context().mutex);
  Backoff backoff_;
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_PUSH_EXCHANGE_H_
