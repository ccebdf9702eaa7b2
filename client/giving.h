// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLIENT_GIVING_H_
#define HOLDFAST_CLIENT_GIVING_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/call_group.h"
#include "client/cluster.h"
#include "client/context.h"
#include "client/loan.h"
#include "client/rpc.h"

namespace holdfast::client {

// Gives the shards of one generation the first values that they lack. Each
// shard says what it wants next (Shard.Give), until it has everything.
//
// Thread-safe, except for Await.
class Giving final : public Cluster::Handle {
 public:
  // The given variables' complete values, by name. The memory must stay
  // unchanged until Await has returned or this object is destroyed.
  using Values = absl::flat_hash_map<std::string, absl::Span<const float>>;

  // Starts the calls.
  Giving(std::shared_ptr<Context> context, const proto::Sender& sender,
         Values values);
  ~Giving() override;

  uint64_t generation() const { return sender_->generation(); }

  bool done() const override ABSL_LOCKS_EXCLUDED(context_->mutex);
  // Waits until every shard has everything. Returns OK also if the generation
  // is over, because the next generation asks for the values again.
  // Errors: INVALID_ARGUMENT, from a shard, if the values are not those that
  // were declared; INTERNAL if it wants values that are not given.
  absl::Status Await(absl::Time deadline) ABSL_LOCKS_EXCLUDED(context_->mutex);

 private:
  // Offers `request` to a shard, which answers with what it wants next.
  void Offer(uint32_t ps, WithTensors<proto::GiveRequest> request);
  Next OnAnswer(uint32_t ps, const absl::StatusOr<proto::GiveResponse>& answer)
      ABSL_LOCKS_EXCLUDED(context_->mutex);
  absl::StatusOr<WithTensors<proto::GiveRequest>> RequestOf(
      uint32_t ps, const proto::GiveResponse& answer) const;
  bool over() const ABSL_SHARED_LOCKS_REQUIRED(context_->mutex);
  std::string Missing() const ABSL_SHARED_LOCKS_REQUIRED(context_->mutex);

  const std::shared_ptr<Context> context_;
  const std::shared_ptr<const proto::Sender> sender_;
  const Values values_;
  Loan loan_;
  // Why giving the values has failed; OK if it has not.
  absl::Status error_ ABSL_GUARDED_BY(context_->mutex);
  // Indexed by ps: whether the ps has everything.
  std::vector<bool> satisfied_ ABSL_GUARDED_BY(context_->mutex);
  // Destroyed first.
  CallGroup calls_;
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_GIVING_H_
