#ifndef HOLDFAST_PS_SERVER_SERVICE_COORDINATOR_SERVICE_H_
#define HOLDFAST_PS_SERVER_SERVICE_COORDINATOR_SERVICE_H_

#include <string>

#include "common/base/strand.h"
#include "ps_server/coordinator/coordinator.h"
#include "ps_server/service/call_recorder.h"
#include "ps_server/service/rpc_server.h"

namespace holdfast {

// proto::Coordinator: hands each well-formed call to `coordinator`, which lives
// on `strand`. All must outlive the server. `recorder`: of calls; null: nobody
// records them.
RpcMethods CoordinatorMethods(Coordinator* coordinator, Strand* strand,
                              CallRecorder* recorder);

// proto::Coordinator at a ps that has no coordinator: every call fails with
// FAILED_PRECONDITION, which names `here` and `ask` ("/job:ps/task:0 at
// a:2222").
RpcMethods NoCoordinatorMethods(const std::string& here,
                                const std::string& ask);

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SERVICE_COORDINATOR_SERVICE_H_
