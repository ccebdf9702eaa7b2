#ifndef HOLDFAST_PS_SERVER_SERVICE_COORDINATOR_SERVICE_H_
#define HOLDFAST_PS_SERVER_SERVICE_COORDINATOR_SERVICE_H_

#include <memory>
#include <string>

#include "common/strand.h"
#include "ps_server/coordinator/coordinator.h"

namespace grpc {
class Service;
}  // namespace grpc

namespace holdfast {

// proto::Coordinator over gRPC: hands each well-formed call to `coordinator`,
// which lives on `strand`. Both must outlive the gRPC server.
std::unique_ptr<grpc::Service> MakeCoordinatorService(Coordinator* coordinator,
                                                      Strand* strand);

// proto::Coordinator at a ps that has no coordinator: every call fails with
// FAILED_PRECONDITION, which names `here` and `ask` ("/job:ps/task:0 at
// a:2222").
std::unique_ptr<grpc::Service> MakeNoCoordinatorService(const std::string& here,
                                                        const std::string& ask);

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SERVICE_COORDINATOR_SERVICE_H_
