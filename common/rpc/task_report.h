// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_RPC_TASK_REPORT_H_
#define HOLDFAST_COMMON_RPC_TASK_REPORT_H_

#include <optional>

#include "proto/coordinator.pb.h"

namespace holdfast {

// What a task reports to the coordinator about itself with each renewal of its
// lease, as fields of RenewLeaseRequest. An absent field is not sent: the task
// has nothing to report, or nothing yet.
struct TaskReport {
  std::optional<proto::InputWait> input_wait;
  std::optional<proto::WorkerReport> worker;
  std::optional<proto::PsReport> ps;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_RPC_TASK_REPORT_H_
