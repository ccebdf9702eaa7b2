#include "ps_server/service/coordinator_service.h"

#include <grpcpp/support/server_callback.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/rpc/status.h"
#include "proto/coordinator.grpc.pb.h"
#include "ps_server/service/unary_call.h"

namespace holdfast {
namespace {

using Context = grpc::CallbackServerContext;
using Reactor = grpc::ServerUnaryReactor;

class CoordinatorService final : public proto::Coordinator::CallbackService {
 public:
  CoordinatorService(Coordinator* coordinator, Strand* strand)
      : coordinator_(coordinator), strand_(strand) {}

  Reactor* Register(Context*, const proto::RegisterRequest* request,
                    proto::RegisterResponse* response) override {
    return Call(&Coordinator::Register, request, response);
  }
  Reactor* RenewLease(Context*, const proto::RenewLeaseRequest* request,
                      proto::RenewLeaseResponse* response) override {
    return Call(&Coordinator::RenewLease, request, response);
  }
  Reactor* Declare(Context*, const proto::DeclareRequest* request,
                   proto::DeclareResponse* response) override {
    return Call(&Coordinator::Declare, request, response);
  }
  Reactor* GetPlacement(Context*, const proto::GetPlacementRequest* request,
                        proto::GetPlacementResponse* response) override {
    return Call(&Coordinator::GetPlacement, request, response);
  }
  Reactor* Contribute(Context*, const proto::ContributeRequest* request,
                      proto::ContributeResponse* response) override {
    return Call(&Coordinator::Contribute, request, response);
  }
  Reactor* TakeTicket(Context*, const proto::TakeTicketRequest* request,
                      proto::TakeTicketResponse* response) override {
    return Call(&Coordinator::TakeTicket, request, response);
  }
  Reactor* ReportEvaluation(
      Context*, const proto::ReportEvaluationRequest* request,
      proto::ReportEvaluationResponse* response) override {
    return Call(&Coordinator::ReportEvaluation, request, response);
  }
  Reactor* Leave(Context*, const proto::LeaveRequest* request,
                 proto::LeaveResponse* response) override {
    return Call(&Coordinator::Leave, request, response);
  }
  Reactor* GetStatus(Context*, const proto::GetStatusRequest* request,
                     proto::GetStatusResponse* response) override {
    return Call(&Coordinator::GetStatus, request, response);
  }
  Reactor* Checkpoint(Context*, const proto::CheckpointRequest* request,
                      proto::CheckpointResponse* response) override {
    return Call(&Coordinator::Checkpoint, request, response);
  }

 private:
  template <typename Request, typename Response>
  Reactor* Call(void (Coordinator::*method)(const Request&, Reply<Response>),
                const Request* request, Response* response) {
    return CallMachine(strand_, &Strand::RunOrPost, coordinator_, method,
                       request, response);
  }

  Coordinator* const coordinator_;
  Strand* const strand_;
};

class NoCoordinatorService final : public proto::Coordinator::CallbackService {
 public:
  explicit NoCoordinatorService(absl::Status refusal)
      : refusal_(std::move(refusal)) {}

  Reactor* Register(Context* context, const proto::RegisterRequest*,
                    proto::RegisterResponse*) override {
    return Refuse(context);
  }
  Reactor* RenewLease(Context* context, const proto::RenewLeaseRequest*,
                      proto::RenewLeaseResponse*) override {
    return Refuse(context);
  }
  Reactor* Declare(Context* context, const proto::DeclareRequest*,
                   proto::DeclareResponse*) override {
    return Refuse(context);
  }
  Reactor* GetPlacement(Context* context, const proto::GetPlacementRequest*,
                        proto::GetPlacementResponse*) override {
    return Refuse(context);
  }
  Reactor* Contribute(Context* context, const proto::ContributeRequest*,
                      proto::ContributeResponse*) override {
    return Refuse(context);
  }
  Reactor* TakeTicket(Context* context, const proto::TakeTicketRequest*,
                      proto::TakeTicketResponse*) override {
    return Refuse(context);
  }
  Reactor* ReportEvaluation(Context* context,
                            const proto::ReportEvaluationRequest*,
                            proto::ReportEvaluationResponse*) override {
    return Refuse(context);
  }
  Reactor* Leave(Context* context, const proto::LeaveRequest*,
                 proto::LeaveResponse*) override {
    return Refuse(context);
  }
  Reactor* GetStatus(Context* context, const proto::GetStatusRequest*,
                     proto::GetStatusResponse*) override {
    return Refuse(context);
  }
  Reactor* Checkpoint(Context* context, const proto::CheckpointRequest*,
                      proto::CheckpointResponse*) override {
    return Refuse(context);
  }

 private:
  Reactor* Refuse(Context* context) const {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(ToGrpcStatus(refusal_));
    return reactor;
  }

  const absl::Status refusal_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeCoordinatorService(Coordinator* coordinator,
                                                      Strand* strand) {
  return std::make_unique<CoordinatorService>(coordinator, strand);
}

std::unique_ptr<grpc::Service> MakeNoCoordinatorService(
    const std::string& here, const std::string& ask) {
  return std::make_unique<NoCoordinatorService>(absl::FailedPreconditionError(
      absl::StrCat(here, " does not coordinate; ask ", ask)));
}

}  // namespace holdfast
