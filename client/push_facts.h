// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLIENT_PUSH_FACTS_H_
#define HOLDFAST_CLIENT_PUSH_FACTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cluster.h"
#include "client/context.h"
#include "client/generation_state.h"
#include "common/job/ids.h"

namespace holdfast::client {

// The facts about a push that never change: its generation, its number, its
// ticket, and the versions on which its gradient was computed.
struct PushFacts {
  Context& context() const { return *generation->context; }
  const Layout& layout() const { return generation->placement.layout; }
  const Plan& plan() const { return generation->placement.push; }
  // The plan that is used instead of plan() if ranges that plan() lends cannot
  // be lent.
  const Plan& sent_plan() const { return generation->placement.sent_push; }
  bool asynchronous() const { return generation->placement.asynchronous(); }

  // Describes the verdict that is waited for, for errors. Must be called with
  // the lock held.
  std::string MissingVerdict() const {
    const std::string& step = context().step_waits_for;
    return absl::StrCat("the verdict on push ", sequence.value(), " by ",
                        context().ps_names[0], step.empty() ? "" : "; ", step);
  }

  std::shared_ptr<GenerationState> generation;
  PushSequence sequence;
  // Absent: a push without a ticket.
  std::optional<Ticket> ticket;
  // Indexed by ps: the value of PushRequest.step. In synchronous jobs, the same
  // for all ps.
  std::vector<GlobalStep> steps;
  // Set if the push was started again (Push::StartAgain) after parts of it had
  // been sent. Indexed by ps: the number of parts that these said the push has;
  // 0 if none was sent.
  std::vector<size_t> announced;
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_PUSH_FACTS_H_
