// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_SERVICE_HEALTH_SERVICE_H_
#define HOLDFAST_PS_SERVER_SERVICE_HEALTH_SERVICE_H_

#include "common/job/task_id.h"
#include "ps_server/service/rpc_server.h"

namespace holdfast {

// The methods of grpc.health.v1.Health, served beside `others`. The services of
// `others` are SERVING for as long as the server answers, and so is one named
// after `self`, by which peers check that they have reached the task they meant
// to.
RpcMethods HealthMethods(const TaskId& self, const RpcMethods& others);

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SERVICE_HEALTH_SERVICE_H_
