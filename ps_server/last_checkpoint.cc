// SPDX-License-Identifier: Apache-2.0
#include "ps_server/last_checkpoint.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/job/job_phase.h"
#include "common/rpc/channel.h"
#include "common/rpc/deadline.h"
#include "common/rpc/status.h"
#include "proto/coordinator.grpc.pb.h"

namespace holdfast {
namespace {

// How long one request for a checkpoint is parked.
constexpr absl::Duration kCheckpointPark = absl::Seconds(2);

}  // namespace

CheckpointCall LocalCheckpointCall(Coordinator* coordinator, Strand* strand) {
  return [coordinator, strand](
             const proto::CheckpointRequest& request,
             absl::Time deadline) -> absl::StatusOr<proto::CheckpointResponse> {
    // Shared with the reply, which may come after the caller has given up.
    struct Call {
      absl::Notification answered;
      absl::StatusOr<proto::CheckpointResponse> response =
          absl::DeadlineExceededError("no answer");
    };
    const auto call = std::make_shared<Call>();
    strand->Post([coordinator, request, call] {
      coordinator->Checkpoint(request, [call](auto response) {
        call->response = std::move(response);
        call->answered.Notify();
      });
    });
    if (!call->answered.WaitForNotificationWithTimeout(deadline -
                                                       SteadyNow())) {
      return absl::DeadlineExceededError("no answer");
    }
    return call->response;
  };
}

CheckpointCall RemoteCheckpointCall(const std::string& address,
                                    const Credentials& credentials) {
  const std::shared_ptr<proto::Coordinator::Stub> stub =
      proto::Coordinator::NewStub(
          MakeChannel(address, /*ps=*/0, ChannelKind::kControl, credentials));
  return
      [stub](const proto::CheckpointRequest& request,
             absl::Time deadline) -> absl::StatusOr<proto::CheckpointResponse> {
        grpc::ClientContext context;
        context.set_deadline(GrpcDeadline(deadline));
        proto::CheckpointResponse response;
        HOLDFAST_RETURN_IF_ERROR(
            FromGrpcStatus(stub->Checkpoint(&context, request, &response)));
        return response;
      };
}

absl::Status SaveCheckpoint(const CheckpointCall& call, absl::Time deadline) {
  proto::CheckpointRequest request;
  request.set_wait_ms(absl::ToInt64Milliseconds(kCheckpointPark));
  for (;;) {
    HOLDFAST_ASSIGN_OR_RETURN(const auto response, call(request, deadline));
    if (response.durable_step() >= response.step() ||
        IsEnd(response.state().phase())) {
      return absl::OkStatus();
    }
    if (!response.error().empty()) {
      return absl::UnavailableError(response.error());
    }
    if (SteadyNow() >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("step ", response.step(), " is not on disk yet"));
    }
    request.set_step(response.step());
  }
}

}  // namespace holdfast
