// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_COORDINATOR_STOP_ORDER_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_STOP_ORDER_H_

#include <cstdint>
#include <string>
#include <variant>

#include "proto/coordinator.pb.h"
#include "ps_server/coordinator/job.h"
#include "ps_server/coordinator/save.h"
#include "ps_server/protocol/parked_calls.h"
#include "ps_server/reply/reply.h"

namespace holdfast {

// An operator's order to stop the job so that it can be resumed later, and the
// calls that wait for the job to stop (docs/protocol/recovery.md, E1 to E4).
// The order holds across generations, and ends with the coordinator's life.
//
// Thread-compatible.
class StopOrder {
 public:
  StopOrder(Job* job, const Save* save) : job_(job), save_(save) {}

  // [E1] Orders the job to stop, and parks the call until the job has ended.
  void Ask(const proto::StopRequest& request, Reply<proto::StopResponse> reply);
  // Parks the call until the job has ended, and orders nothing.
  void Await(const proto::StopRequest& request,
             Reply<proto::StopResponse> reply);
  // Answers the call with the state of the job, and orders nothing.
  void Tell(Reply<proto::StopResponse> reply);
  bool asked() const { return asked_; }
  // Whether the operator has waived the last checkpoint.
  bool without_checkpoint() const { return without_checkpoint_; }

  void AnswerAll();
  void AnswerDue();

  // [E4] Describes a job that is STOPPED: at which step, and where it can be
  // resumed.
  std::string Describe() const;

 private:
  proto::StopResponse Answer() const;

  Job* const job_;
  const Save* const save_;
  bool asked_ = false;
  bool without_checkpoint_ = false;
  ParkedCalls<std::monostate, proto::StopResponse> parked_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_STOP_ORDER_H_
