// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_SERVICE_HEALTH_SERVICE_H_
#define HOLDFAST_PS_SERVER_SERVICE_HEALTH_SERVICE_H_

#include "common/job/task_id.h"
#include "ps_server/service/rpc_server.h"

namespace holdfast {

// The methods of grpc.health.v1.Health, served beside `others`. The services of
// `others` are SERVING for as long as the server answers. So is a service with
// the name of `self`, by which peers check that they have reached the intended
// task.
RpcMethods HealthMethods(const TaskId& self, const RpcMethods& others);

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SERVICE_HEALTH_SERVICE_H_
