// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_SERVICE_COORDINATOR_SERVICE_H_
#define HOLDFAST_PS_SERVER_SERVICE_COORDINATOR_SERVICE_H_

#include <string>

#include "common/base/strand.h"
#include "ps_server/coordinator/coordinator.h"
#include "ps_server/service/call_recorder.h"
#include "ps_server/service/rpc_server.h"

namespace holdfast {

// The methods of proto::Coordinator: each well-formed call is passed to
// `coordinator`, which lives on `strand`. `recorder` records the calls; it may
// be null. All three must outlive the server.
RpcMethods CoordinatorMethods(Coordinator* coordinator, Strand* strand,
                              CallRecorder* recorder);

// The methods of proto::Coordinator on a ps that has no coordinator: every call
// fails with FAILED_PRECONDITION. The error names this task, `here`, and the
// task to call instead, `ask` ("/job:ps/task:0 at a:2222").
RpcMethods NoCoordinatorMethods(const std::string& here,
                                const std::string& ask);

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SERVICE_COORDINATOR_SERVICE_H_
