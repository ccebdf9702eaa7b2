#ifndef HOLDFAST_CLIENT_WIRE_H_
#define HOLDFAST_CLIENT_WIRE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/call_group.h"
#include "client/context.h"
#include "common/rpc/credentials.h"
#include "common/rpc/diagnosis.h"
#include "common/tensor_piece.h"
#include "common/trace.h"
#include "proto/cluster.pb.h"
#include "proto/coordinator.pb.h"
#include "proto/health.pb.h"
#include "proto/shard.pb.h"

namespace holdfast::client {

// A message, and its tensors as buffers.
template <typename Message>
struct WithTensors {
  // As in a message; for requests.
  const proto::Sender& sender() const { return message.sender(); }
  proto::Sender* mutable_sender() { return message.mutable_sender(); }

  Message message;
  std::vector<TensorPiece> tensors;
};

// The calls of proto/coordinator.proto and proto/shard.proto, asynchronous. The
// only part of the client that knows gRPC's channels and stubs.
//
// Each call belongs to a group, which fills in the request's `sender` and sends
// it again on transient errors; and tells the context what its answer says
// about the job before the answer is told. Errors begin with the name of the
// ps.
//
// ABORTED, as status or verdict, and NOT_FOUND from the coordinator ("no such
// session") say that generation or life of the sender are over: that is for the
// context to hear, not for the caller.
//
// Thread-safe.
class Wire {
 public:
  // `ps_addresses`: host:port, by ps index. `tracer`: where attempts are
  // recorded; null: nowhere.
  Wire(std::shared_ptr<Context> context,
       const std::vector<std::string>& ps_addresses,
       const Credentials& credentials, Tracer* tracer);
  // Waits until gRPC has let go of all calls, whose groups must be cancelled.
  ~Wire();

  uint32_t num_ps() const;
  // "/job:ps/task:1 (127.0.0.1:4001)".
  const std::string& PsName(uint32_t ps) const;

  // Waits until there is a connection to every ps, and each has said that it is
  // the one that is meant. `fail_fast`: not any longer once it is certain why
  // there is none.
  // Errors: UNAVAILABLE, with the name of the ps and the cause;
  // INVALID_ARGUMENT when it is a mistake (Diagnosis::kMistake), as another ps
  // at its address; why the context has ended.
  absl::Status AwaitConnected(absl::Time deadline, bool fail_fast);

  // To the coordinator.
  void Declare(const CallGroup& group, proto::DeclareRequest request,
               Answer<proto::DeclareResponse> answer);
  void GetPlacement(const CallGroup& group, proto::GetPlacementRequest request,
                    Answer<proto::GetPlacementResponse> answer);
  void Contribute(const CallGroup& group, proto::ContributeRequest request,
                  Answer<proto::ContributeResponse> answer);
  void TakeTicket(const CallGroup& group, proto::TakeTicketRequest request,
                  Answer<proto::TakeTicketResponse> answer);
  void ReportEvaluation(const CallGroup& group,
                        proto::ReportEvaluationRequest request,
                        Answer<proto::ReportEvaluationResponse> answer);
  void GetStatus(const CallGroup& group, proto::GetStatusRequest request,
                 Answer<proto::GetStatusResponse> answer);
  void Checkpoint(const CallGroup& group, proto::CheckpointRequest request,
                  Answer<proto::CheckpointResponse> answer);

  // To one ps. The bytes of a request's tensors are not copied: their owners
  // are kept until gRPC has let go of them, which may be after the group was
  // cancelled.
  void Push(const CallGroup& group, uint32_t ps,
            WithTensors<proto::PushRequest> request,
            Answer<proto::PushResponse> answer);
  void PushPull(const CallGroup& group, uint32_t ps,
                WithTensors<proto::PushPullRequest> request,
                Answer<WithTensors<proto::PushPullResponse>> answer);
  void Apply(const CallGroup& group, uint32_t ps, proto::ApplyRequest request,
             Answer<proto::ApplyResponse> answer);
  void Pull(const CallGroup& group, uint32_t ps, proto::PullRequest request,
            Answer<WithTensors<proto::PullResponse>> answer);
  void Pin(const CallGroup& group, uint32_t ps, proto::PinRequest request,
           Answer<proto::PinResponse> answer);
  void Unpin(const CallGroup& group, uint32_t ps, proto::UnpinRequest request,
             Answer<proto::UnpinResponse> answer);

 private:
  struct Impl;  // channels and stubs

  absl::Status AwaitConnection(uint32_t ps, absl::Time deadline, bool fail_fast,
                               absl::Time* report);
  absl::Status AwaitNames(absl::Time deadline);
  // That ps `ps` is not what is at its address, and where that should be.
  absl::Status Mistake(uint32_t ps, const Diagnosis& diagnosis) const;
  // Asks a ps whether it is the task that it is taken for.
  void Check(const CallGroup& group, uint32_t ps,
             Answer<grpc::health::v1::HealthCheckResponse> answer);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_WIRE_H_
