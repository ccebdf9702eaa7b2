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

// An operator's wish that the job stops and can go on later, and the calls that
// wait for that (docs/protocol/recovery.md, E1 to E4). It outlives generations,
// and ends with the coordinator's life.
//
// Thread-compatible.
class StopOrder {
 public:
  StopOrder(Job* job, const Save* save) : job_(job), save_(save) {}

  // [E1] The job is to stop from now on. The call is parked until it has ended.
  void Ask(const proto::StopRequest& request, Reply<proto::StopResponse> reply);
  // Only answers.
  void Tell(Reply<proto::StopResponse> reply);
  bool asked() const { return asked_; }
  // Whoever asked does without a checkpoint.
  bool without_checkpoint() const { return without_checkpoint_; }

  void AnswerAll();
  void AnswerDue();

  // [E4] Of a job that is STOPPED: at which step, and what goes on from where.
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
