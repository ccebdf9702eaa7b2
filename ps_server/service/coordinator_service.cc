// SPDX-License-Identifier: Apache-2.0
#include "ps_server/service/coordinator_service.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/coordinator.pb.h"
#include "ps_server/service/machine_method.h"

namespace holdfast {
namespace {

std::string FullName(const std::string& method) {
  return absl::StrCat("/holdfast.proto.Coordinator/", method);
}

}  // namespace

RpcMethods CoordinatorMethods(Coordinator* coordinator, Strand* strand,
                              CallRecorder* recorder) {
  RpcMethods methods;
  const auto add = [&](const char* name, auto method) {
    methods[FullName(name)] = MachineMethod(strand, &Strand::RunOrPost,
                                            coordinator, method, recorder);
  };
  add("Register", &Coordinator::Register);
  add("RenewLease", &Coordinator::RenewLease);
  add("Declare", &Coordinator::Declare);
  add("GetPlacement", &Coordinator::GetPlacement);
  add("Contribute", &Coordinator::Contribute);
  add("TakeTicket", &Coordinator::TakeTicket);
  add("ReportEvaluation", &Coordinator::ReportEvaluation);
  add("NextEvaluation", &Coordinator::NextEvaluation);
  add("Leave", &Coordinator::Leave);
  add("GetStatus", &Coordinator::GetStatus);
  add("GetEvents", &Coordinator::GetEvents);
  add("GetHistory", &Coordinator::GetHistory);
  add("Checkpoint", &Coordinator::Checkpoint);
  add("Trace", &Coordinator::Trace);
  add("ReportTrace", &Coordinator::ReportTrace);
  add("Stop", &Coordinator::Stop);
  add("SetLearningRate", &Coordinator::SetLearningRate);
  return methods;
}

RpcMethods NoCoordinatorMethods(const std::string& here,
                                const std::string& ask) {
  const absl::Status refusal = absl::FailedPreconditionError(
      absl::StrCat(here, " does not coordinate; ask ", ask));
  RpcMethods methods;
  const google::protobuf::ServiceDescriptor& service =
      *proto::RegisterRequest::descriptor()->file()->FindServiceByName(
          "Coordinator");
  for (int i = 0; i < service.method_count(); ++i) {
    methods[FullName(service.method(i)->name())] =
        [refusal](const Caller&, const grpc::ByteBuffer&,
                  Reply<grpc::ByteBuffer> reply) { reply(refusal); };
  }
  return methods;
}

}  // namespace holdfast
