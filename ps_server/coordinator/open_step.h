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

// The open step, to which contributions are made
// (docs/protocol/life_of_a_step.md, steps 3 and 4): which pushes fill its
// seats, which calls wait for its verdict, and whether it is complete. Only
// synchronous jobs open steps.
//
// Thread-compatible.
class OpenStep {
 public:
  using Parked = ParkedCalls<PushId, proto::ContributeResponse>;
  // Workers by name, with their replica indices.
  using Members = std::map<TaskId, uint32_t>;

  explicit OpenStep(const JobDeclaration* declared) : declared_(declared) {}

  // Called when a generation is over: closes the step, and opens none. Calls
  // stay parked.
  void Reset();
  // Opens step `number`, in place of the previous one.
  void Open(GlobalStep number);
  bool open() const { return step_.has_value(); }
  GlobalStep number() const { return step_->number(); }
  const Step& step() const { return *step_; }
  // [L5] For jobs that continue without lost workers: sets the workers that the
  // step waits for, which are those that are live when it is opened. They are
  // kept from step to step. `as_of` is the version of the member list
  // (Members::presence_changes) from which they were computed.
  void SetMembers(Members members, uint64_t as_of) {
    members_ = std::move(members);
    members_as_of_ = as_of;
  }
  std::optional<uint64_t> members_as_of() const { return members_as_of_; }
  // [L4] Called when a life is fenced. Vacates its seats, and no longer waits
  // for its worker.
  void Remove(const WorkerLife& life);

  // Seats the push and returns VERDICT_UNSPECIFIED, or returns the reason why
  // it does not count: STALE or DUPLICATE. There must be an open step. `sealed`
  // says whether the contents of all steps are decided, so that no further push
  // counts.
  // Errors: those of Contribute.
  absl::StatusOr<proto::Verdict> Offer(const proto::ContributeRequest& request,
                                       const PushId& push, uint32_t replica,
                                       bool sealed, const TicketBook& tickets,
                                       const Verdicts& verdicts);

  // Whether the step has N offers, or at least one and all that can come. No
  // more can come if no other push has a ticket or can get one; or if the job
  // continues without lost workers, all members have offered, and
  // `short_handed` permits steps of fewer than N offers.
  bool IsComplete(const TicketBook& tickets, bool short_handed) const;

  Parked* parked() { return &parked_; }
  // Takes all parked calls of `life` out of parked().
  std::vector<Parked::Call> TakeOf(const WorkerLife& life) {
    return parked_.TakeBetween(FirstOf(life), LastOf(life));
  }

 private:
  const JobDeclaration* const declared_;
  std::optional<Step> step_;
  Members members_;
  // The version of the member list from which members_ was last computed.
  // Absent if a member has been removed since, so that members_ must be
  // computed again.
  std::optional<uint64_t> members_as_of_;
  Parked parked_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_OPEN_STEP_H_
