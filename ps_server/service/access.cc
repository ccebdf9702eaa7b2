// SPDX-License-Identifier: Apache-2.0
#include "ps_server/service/access.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace holdfast {
namespace {

using Roles = std::set<std::string>;

constexpr char kCoordinator[] = "coordinator";

const std::map<std::string, Roles>& AccessTable() {
  static const auto* const table = [] {
    const Roles anybody = {kPsJob, kWorkerJob, kChiefJob, kEvaluatorJob,
                           kOperatorJob};
    const Roles members = {kPsJob, kWorkerJob, kChiefJob, kEvaluatorJob};
    // The tasks that train.
    const Roles workers = {kWorkerJob, kChiefJob};
    // The tasks that evaluate: if no chief is listed, a worker does.
    const Roles evaluators = {kWorkerJob, kChiefJob, kEvaluatorJob};
    const Roles readers = {kWorkerJob, kChiefJob, kEvaluatorJob, kOperatorJob};
    const Roles coordinator = {kCoordinator};
    return new std::map<std::string, Roles>{
        {"/holdfast.proto.Coordinator/Register", members},
        {"/holdfast.proto.Coordinator/RenewLease", members},
        {"/holdfast.proto.Coordinator/Leave", members},
        {"/holdfast.proto.Coordinator/Declare", workers},
        {"/holdfast.proto.Coordinator/GetPlacement", readers},
        {"/holdfast.proto.Coordinator/Contribute", workers},
        {"/holdfast.proto.Coordinator/TakeTicket", workers},
        {"/holdfast.proto.Coordinator/ReportEvaluation", evaluators},
        {"/holdfast.proto.Coordinator/NextEvaluation", {kEvaluatorJob}},
        {"/holdfast.proto.Coordinator/GetStatus", anybody},
        {"/holdfast.proto.Coordinator/GetEvents", anybody},
        {"/holdfast.proto.Coordinator/GetHistory", anybody},
        // A ps that is told to stop has the job saved first.
        {"/holdfast.proto.Coordinator/Checkpoint", {kPsJob, kOperatorJob}},
        {"/holdfast.proto.Coordinator/Trace", {kOperatorJob}},
        {"/holdfast.proto.Coordinator/ReportTrace", members},
        // Workers only to finish the job (CheckUse).
        {"/holdfast.proto.Coordinator/Stop",
         {kWorkerJob, kChiefJob, kOperatorJob}},
        {"/holdfast.proto.Coordinator/SetLearningRate", {kOperatorJob}},

        {"/holdfast.proto.Shard/Give", workers},
        {"/holdfast.proto.Shard/Push", workers},
        {"/holdfast.proto.Shard/Apply", workers},
        {"/holdfast.proto.Shard/PushPull", workers},
        {"/holdfast.proto.Shard/Pull", readers},
        {"/holdfast.proto.Shard/Pin", readers},
        {"/holdfast.proto.Shard/Unpin", readers},
        {"/holdfast.proto.Shard/Link", readers},
        {"/holdfast.proto.Shard/Restore", coordinator},
        {"/holdfast.proto.Shard/Commit", coordinator},
        {"/holdfast.proto.Shard/Fence", coordinator},
        {"/holdfast.proto.Shard/Resolve", coordinator},
        {"/holdfast.proto.Shard/Hold", coordinator},
        {"/holdfast.proto.Shard/Save", coordinator},
        {"/holdfast.proto.Shard/AwaitSaved", coordinator},
        {"/holdfast.proto.Shard/End", coordinator},

        {"/grpc.health.v1.Health/Check", anybody},
    };
  }();
  return *table;
}

}  // namespace

Roles RolesOf(const std::string& method) {
  const auto found = AccessTable().find(method);
  return found == AccessTable().end() ? Roles() : found->second;
}

absl::Status CheckAccess(const std::string& training, const Caller& caller,
                         const std::string& method) {
  if (!caller.has_value()) return absl::OkStatus();
  if (caller->training != training) {
    return absl::UnauthenticatedError(
        absl::StrCat("this ps belongs to the training \"", training,
                     "\", not to that of ", caller->ToUri()));
  }
  const auto found = AccessTable().find(method);
  if (found != AccessTable().end()) {
    const Roles& roles = found->second;
    const TaskId& task = caller->task;
    if (roles.count(task.job) > 0) return absl::OkStatus();
    if (task == TaskId{kPsJob, 0} && roles.count(kCoordinator) > 0) {
      return absl::OkStatus();
    }
  }
  return absl::PermissionDeniedError(
      absl::StrCat(caller->ToUri(), " may not call ", method,
                   ", which is for: ", absl::StrJoin(RolesOf(method), ", ")));
}

absl::Status CheckUse(const Caller& caller, const proto::StopRequest& request) {
  if (!caller.has_value() || caller->task.job == kOperatorJob ||
      request.finish()) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(absl::StrCat(
      caller->ToUri(),
      " may end the job (finish), but only operators may stop it"));
}

absl::Status CheckSender(const Caller& caller, const proto::Sender& sender) {
  if (!caller.has_value()) return absl::OkStatus();
  const TaskId named = {sender.task().job(), sender.task().index()};
  const bool is_he = caller->task.job == kOperatorJob ? named.job == kClientJob
                                                      : named == caller->task;
  if (is_he) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("sender.task is ", named.ToString(),
                   ", but the certificate is that of ", caller->ToUri()));
}

absl::Status CheckSenderOf(const Caller& caller,
                           const proto::StopRequest& request, int) {
  const bool by_operator =
      caller.has_value() && caller->task.job == kOperatorJob;
  if (by_operator && !request.has_sender()) return absl::OkStatus();
  return CheckSender(caller, request.sender());
}

}  // namespace holdfast
