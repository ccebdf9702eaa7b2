#ifndef HOLDFAST_CLIENT_APPLY_H_
#define HOLDFAST_CLIENT_APPLY_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "client/call_group.h"
#include "client/cluster.h"
#include "client/generation_state.h"

namespace holdfast::client {

// docs/asynchronous.md, A3, as the worker does it: Apply to every shard that
// pushes bring something, asked again until each has a verdict. When all have
// said ACCEPTED, the ticket is spent.
//
// Thread-safe.
class Applier {
 public:
  // `generation` and `calls`, to which its calls belong, must outlive this
  // object.
  Applier(GenerationState* generation, const CallGroup* calls,
          const Ticket& ticket);

  // To be called once, when every shard has acknowledged every part, or, with 0
  // examples, at any time.
  void Start(const Application& application) ABSL_LOCKS_EXCLUDED(mutex_);
  // In place of it, where the only shard was asked with the push itself, and
  // has told a verdict.
  void Take(const Application& application,
            const proto::ApplyResponse& response) ABSL_LOCKS_EXCLUDED(mutex_);

  // Of the ticket.
  const std::vector<proto::StepScalars>& scalars() const {
    return ticket_.scalars;
  }
  uint64_t ticket_receipt() const { return ticket_.receipt; }

  bool over() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return over_; }
  // Once it is over.
  absl::StatusOr<Cluster::Push::Applied> outcome() const
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // Whom it waits for.
  std::string Missing() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);

 private:
  void SetSpent(const Application& application)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  struct Shard {
    // Or there is nothing to apply at it.
    bool applied = false;
    std::string waiting_for;
  };

  // All have applied it.
  void Finish() ABSL_LOCKS_EXCLUDED(mutex_);
  Next OnAnswer(uint32_t ps,
                const absl::StatusOr<proto::ApplyResponse>& response)
      ABSL_LOCKS_EXCLUDED(mutex_);

  GenerationState* const generation_;
  absl::Mutex& mutex_;
  const CallGroup& calls_;
  const Ticket ticket_;

  // What is told when all have applied it.
  proto::SpentTicket spent_ ABSL_GUARDED_BY(mutex_);
  std::vector<Shard> shards_ ABSL_GUARDED_BY(mutex_);
  size_t num_left_ ABSL_GUARDED_BY(mutex_) = 0;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
  proto::Verdict verdict_ ABSL_GUARDED_BY(mutex_) = proto::VERDICT_UNSPECIFIED;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_APPLY_H_
