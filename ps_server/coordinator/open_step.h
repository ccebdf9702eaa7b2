// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_COORDINATOR_OPEN_STEP_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_OPEN_STEP_H_

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/job/ids.h"
#include "common/job/task_id.h"
#include "proto/coordinator.pb.h"
#include "ps_server/coordinator/job_declaration.h"
#include "ps_server/coordinator/step.h"
#include "ps_server/coordinator/ticket_book.h"
#include "ps_server/coordinator/verdicts.h"
#include "ps_server/protocol/parked_calls.h"
#include "ps_server/protocol/push_id.h"

namespace holdfast {

// The step that contributions are made to (docs/protocol/life_of_a_step.md,
// steps 3 and 4): which pushes fill its seats, which calls wait for its
// verdict, and whether it is complete. Only synchronous jobs open steps.
//
// Thread-compatible.
class OpenStep {
 public:
  using Parked = ParkedCalls<PushId, proto::ContributeResponse>;
  // Workers by name, with their replica indices.
  using Members = std::map<TaskId, uint32_t>;

  explicit OpenStep(const JobDeclaration* declared) : declared_(declared) {}

  // A generation is over: no step is open. Contributions stay parked.
  void Reset();
  // Opens step `number`, in place of the previous one.
  void Open(GlobalStep number);
  bool open() const { return step_.has_value(); }
  GlobalStep number() const { return step_->number(); }
  const Step& step() const { return *step_; }
  // [L5] CONTINUE: sets the workers that the step waits for, which are those
  // that were present when it was opened. They are kept from step to step;
  // `as_of`, the count of presence changes, tells whether they are still the
  // ones present.
  void SetMembers(Members members, uint64_t as_of) {
    members_ = std::move(members);
    members_as_of_ = as_of;
  }
  std::optional<uint64_t> members_as_of() const { return members_as_of_; }
  // [L4] The life is fenced: vacates its seats, and no longer waits for it.
  void Remove(const WorkerLife& life);

  // Seats the push and returns VERDICT_UNSPECIFIED, or returns the reason why
  // it does not count: STALE or DUPLICATE. There must be an open step.
  // `sealed`: all steps of the job are fixed.
  // Errors: those of Contribute.
  absl::StatusOr<proto::Verdict> Offer(const proto::ContributeRequest& request,
                                       const PushId& push, uint32_t replica,
                                       bool sealed, const TicketBook& tickets,
                                       const Verdicts& verdicts);

  // Whether the step has N offers, or all that can come. The latter holds if no
  // other worker has a ticket or can get one; or, if lost workers are not
  // waited for, when all remaining members have offered and `short_handed`
  // permits steps of fewer than N offers.
  bool IsComplete(const TicketBook& tickets, bool short_handed) const;

  Parked* parked() { return &parked_; }
  // Takes out all parked calls of one life.
  std::vector<Parked::Call> TakeOf(const WorkerLife& life) {
    return parked_.TakeBetween(FirstOf(life), LastOf(life));
  }

 private:
  const JobDeclaration* const declared_;
  std::optional<Step> step_;
  Members members_;
  // Absent if a member that was present has been removed.
  std::optional<uint64_t> members_as_of_;
  Parked parked_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_OPEN_STEP_H_
