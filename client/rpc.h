// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLIENT_RPC_H_
#define HOLDFAST_CLIENT_RPC_H_

#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "client/timing.h"
#include "common/rpc/channel.h"
#include "common/tensor/tensor_piece.h"
#include "proto/cluster.pb.h"
#include "proto/coordinator.pb.h"
#include "proto/shard.pb.h"

namespace holdfast::client {

// A message, and its tensors, which are not in the message but in buffers.
template <typename Message>
struct WithTensors {
  Message message;
  std::vector<TensorPiece> tensors;
};

// The number of the field that holds a message's tensors; 0: the message has
// none.
template <typename Message>
struct TensorsField {
  static constexpr int kNumber = 0;
};
template <typename Message>
struct TensorsField<WithTensors<Message>> {
  static constexpr int kNumber = Message::kTensorsFieldNumber;
};

// Describes an RPC method of a ps.
struct Rpc {
  std::string_view name() const {
    const std::string_view path = this->path;
    return path.substr(path.rfind('/') + 1);
  }

  // "/holdfast.proto.Shard/Push".
  const char* path;
  ChannelKind channel;
  // The field of Timing that says how long an attempt may take, in addition to
  // the time that the request asks to be parked.
  absl::Duration Timing::*patience;
  // Whether the call reaches the coordinator, directly or through a shard: then
  // NOT_FOUND is the coordinator's "no such session".
  bool asks_coordinator;
  // Whether a step or a push may hang on the answer of a shard: if a shard
  // refuses it to a worker for good, the job cannot go on.
  bool moves_job;
  bool request_has_sender;
  int request_tensors_field;
  int response_tensors_field;
};

template <typename Message, typename = void>
struct HasSender : std::false_type {};
template <typename Message>
struct HasSender<Message,
                 std::void_t<decltype(std::declval<Message>().sender())>>
    : std::true_type {};
template <typename Message>
struct HasSender<WithTensors<Message>> : HasSender<Message> {};

template <typename Request, typename Response>
struct RpcOf : Rpc {
  constexpr RpcOf(const char* path, ChannelKind channel,
                  absl::Duration Timing::*patience, bool asks_coordinator,
                  bool moves_job = false)
      : Rpc{path,
            channel,
            patience,
            asks_coordinator,
            moves_job,
            HasSender<Request>::value,
            TensorsField<Request>::kNumber,
            TensorsField<Response>::kNumber} {}
};

// The calls of proto/coordinator.proto and proto/shard.proto that a client
// makes, except for those of its session. The session leaves at the end; a
// client that leaves says that a shard has refused its work.
namespace rpc {

inline constexpr RpcOf<proto::DeclareRequest, proto::DeclareResponse> kDeclare(
    "/holdfast.proto.Coordinator/Declare", ChannelKind::kControl,
    &Timing::attempt, true);
inline constexpr RpcOf<proto::GetPlacementRequest, proto::GetPlacementResponse>
    kGetPlacement("/holdfast.proto.Coordinator/GetPlacement",
                  ChannelKind::kControl, &Timing::attempt, true);
inline constexpr RpcOf<proto::ContributeRequest, proto::ContributeResponse>
    kContribute("/holdfast.proto.Coordinator/Contribute", ChannelKind::kControl,
                &Timing::attempt, true);
inline constexpr RpcOf<proto::TakeTicketRequest, proto::TakeTicketResponse>
    kTakeTicket("/holdfast.proto.Coordinator/TakeTicket", ChannelKind::kControl,
                &Timing::attempt, true);
inline constexpr RpcOf<proto::ReportEvaluationRequest,
                       proto::ReportEvaluationResponse>
    kReportEvaluation("/holdfast.proto.Coordinator/ReportEvaluation",
                      ChannelKind::kControl, &Timing::attempt, true);
inline constexpr RpcOf<proto::NextEvaluationRequest,
                       proto::NextEvaluationResponse>
    kNextEvaluation("/holdfast.proto.Coordinator/NextEvaluation",
                    ChannelKind::kControl, &Timing::attempt, true);
inline constexpr RpcOf<proto::LeaveRequest, proto::LeaveResponse> kLeave(
    "/holdfast.proto.Coordinator/Leave", ChannelKind::kControl,
    &Timing::attempt, true);
inline constexpr RpcOf<proto::GetStatusRequest, proto::GetStatusResponse>
    kGetStatus("/holdfast.proto.Coordinator/GetStatus", ChannelKind::kControl,
               &Timing::attempt, true);
inline constexpr RpcOf<proto::GetEventsRequest, proto::GetEventsResponse>
    kGetEvents("/holdfast.proto.Coordinator/GetEvents", ChannelKind::kControl,
               &Timing::attempt, true);
inline constexpr RpcOf<proto::GetHistoryRequest, proto::GetHistoryResponse>
    kGetHistory("/holdfast.proto.Coordinator/GetHistory", ChannelKind::kControl,
                &Timing::attempt, true);
inline constexpr RpcOf<proto::CheckpointRequest, proto::CheckpointResponse>
    kCheckpoint("/holdfast.proto.Coordinator/Checkpoint", ChannelKind::kControl,
                &Timing::attempt, true);
inline constexpr RpcOf<proto::TraceRequest, proto::TraceResponse> kTrace(
    "/holdfast.proto.Coordinator/Trace", ChannelKind::kControl,
    &Timing::attempt, false);
inline constexpr RpcOf<proto::StopRequest, proto::StopResponse> kStop(
    "/holdfast.proto.Coordinator/Stop", ChannelKind::kControl, &Timing::attempt,
    true);
inline constexpr RpcOf<proto::SetLearningRateRequest,
                       proto::SetLearningRateResponse>
    kSetLearningRate("/holdfast.proto.Coordinator/SetLearningRate",
                     ChannelKind::kControl, &Timing::attempt, true);

// Calls to one ps.
inline constexpr RpcOf<WithTensors<proto::GiveRequest>, proto::GiveResponse>
    kGive("/holdfast.proto.Shard/Give", ChannelKind::kTensors,
          &Timing::tensors_attempt, false);
inline constexpr RpcOf<WithTensors<proto::PushRequest>, proto::PushResponse>
    kPush("/holdfast.proto.Shard/Push", ChannelKind::kTensors,
          &Timing::tensors_attempt, false, true);
inline constexpr RpcOf<WithTensors<proto::PushPullRequest>,
                       WithTensors<proto::PushPullResponse>>
    kPushPull("/holdfast.proto.Shard/PushPull", ChannelKind::kTensors,
              &Timing::tensors_attempt, true, true);
inline constexpr RpcOf<proto::ApplyRequest, proto::ApplyResponse> kApply(
    "/holdfast.proto.Shard/Apply", ChannelKind::kControl, &Timing::attempt,
    false, true);
inline constexpr RpcOf<proto::PullRequest, WithTensors<proto::PullResponse>>
    kPull("/holdfast.proto.Shard/Pull", ChannelKind::kTensors,
          &Timing::tensors_attempt, false, true);
inline constexpr RpcOf<proto::PinRequest, proto::PinResponse> kPin(
    "/holdfast.proto.Shard/Pin", ChannelKind::kControl, &Timing::attempt,
    false);
inline constexpr RpcOf<proto::UnpinRequest, proto::UnpinResponse> kUnpin(
    "/holdfast.proto.Shard/Unpin", ChannelKind::kControl, &Timing::attempt,
    false);
// Over the connection that every client has to every ps.
inline constexpr RpcOf<proto::LinkRequest, proto::LinkResponse> kLink(
    "/holdfast.proto.Shard/Link", ChannelKind::kTensors, &Timing::attempt,
    false);

}  // namespace rpc
}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_RPC_H_
