#ifndef HOLDFAST_PS_SERVER_SERVICE_HEALTH_SERVICE_H_
#define HOLDFAST_PS_SERVER_SERVICE_HEALTH_SERVICE_H_

#include "common/job/task_id.h"
#include "ps_server/service/rpc_server.h"

namespace holdfast {

// grpc.health.v1.Health beside `others`: their services are SERVING for as long
// as they can be asked, and so is one with the name of `self`, by which peers
// tell whether they have reached the task that they mean.
RpcMethods HealthMethods(const TaskId& self, const RpcMethods& others);

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SERVICE_HEALTH_SERVICE_H_
