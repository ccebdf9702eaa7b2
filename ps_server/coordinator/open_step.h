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
// steps 3 and 4): who sits in it, who waits for its verdict, and whether it is
// complete. Synchronous jobs; others never open one.
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
  // Opens the step of that number, in place of the one before.
  void Open(GlobalStep number);
  bool open() const { return step_.has_value(); }
  GlobalStep number() const { return step_->number(); }
  const Step& step() const { return *step_; }
  // [L5] CONTINUE: who is waited for, those that were there when the step was
  // opened. They stay from step to step; `as_of` says whether they are those
  // that are there.
  void SetMembers(Members members, uint64_t as_of) {
    members_ = std::move(members);
    members_as_of_ = as_of;
  }
  std::optional<uint64_t> members_as_of() const { return members_as_of_; }
  // [L4] The life is shut out: its seats are vacated, and nobody waits for it.
  void Remove(const WorkerLife& life);

  // Seats the push, and returns VERDICT_UNSPECIFIED, or tells why it does not
  // count: STALE or DUPLICATE. There must be an open step. `sealed`: all steps
  // of the job are fixed.
  // Errors: those of Contribute.
  absl::StatusOr<proto::Verdict> Offer(const proto::ContributeRequest& request,
                                       const PushId& push, uint32_t replica,
                                       bool sealed, const TicketBook& tickets,
                                       const Verdicts& verdicts);

  // Whether the step has N offers, or all that can come: nobody else has a
  // ticket, or can get one; or, where those that are lost are not waited for,
  // all members that are left have offered, and `short_handed` allows it: steps
  // may be made of fewer than N.
  bool IsComplete(const TicketBook& tickets, bool short_handed) const;

  Parked* parked() { return &parked_; }
  // All of one life.
  std::vector<Parked::Call> TakeOf(const WorkerLife& life) {
    return parked_.TakeBetween(FirstOf(life), LastOf(life));
  }

 private:
  const JobDeclaration* const declared_;
  std::optional<Step> step_;
  Members members_;
  // None: they are not all that were there.
  std::optional<uint64_t> members_as_of_;
  Parked parked_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_OPEN_STEP_H_
