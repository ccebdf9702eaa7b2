#include "ps_server/service/shard_service.h"

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/rpc/status.h"
#include "common/rpc/tensor_codec.h"
#include "common/rpc_limits.h"
#include "proto/shard.grpc.pb.h"
#include "ps_server/service/push_pull.h"
#include "ps_server/service/unary_call.h"

namespace holdfast {
namespace {

using Context = grpc::CallbackServerContext;
using Reactor = grpc::ServerUnaryReactor;

// Of a message that the tensors of an answer may fill; the rest is for its
// other fields.
constexpr uint64_t kMaxTensorBytes = kMaxMessageBytes - (64 << 10);

PushPart ToPushPart(proto::PushRequest request,
                    std::vector<TensorPiece> tensors) {
  PushPart part;
  part.sender = std::move(*request.mutable_sender());
  part.sequence = PushSequence(request.sequence());
  part.step = GlobalStep(request.step());
  part.part = request.part();
  part.num_parts = request.num_parts();
  part.acked_through = PushSequence(request.acked_through());
  part.tensors = std::move(tensors);
  return part;
}

// An answer with tensors as bytes. They are sent from where they lie.
template <typename Response>
absl::StatusOr<grpc::ByteBuffer> Encode(
    const Response& response, const std::vector<TensorPiece>& tensors) {
  // What one variable's name and shape add to each of its ranges is known only
  // here.
  const int64_t bytes = EncodedBytes(tensors);
  if (bytes > kMaxMessageBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("ranges: ", bytes, " bytes to answer with, at most ",
                     kMaxMessageBytes, " in one call; ask for fewer at once"));
  }
  return EncodeWithTensors(response, tensors);
}

absl::StatusOr<grpc::ByteBuffer> Encode(absl::StatusOr<PullReply> reply) {
  if (!reply.ok()) return std::move(reply).status();
  proto::PullResponse response;
  response.set_generation(reply->generation.value());
  *response.mutable_state() = std::move(reply->state);
  response.set_version(reply->version.value());
  return Encode(response, reply->tensors);
}

absl::StatusOr<grpc::ByteBuffer> Encode(absl::StatusOr<PushPullReply> reply) {
  if (!reply.ok()) return std::move(reply).status();
  return Encode(reply->response, reply->tensors);
}

absl::StatusOr<grpc::ByteBuffer> Encode(
    const absl::StatusOr<proto::PushResponse>& response) {
  if (!response.ok()) return response.status();
  grpc::ByteBuffer bytes;
  bool own;
  const grpc::Status status =
      grpc::SerializationTraits<proto::PushResponse>::Serialize(*response,
                                                                &bytes, &own);
  if (!status.ok()) return FromGrpcStatus(status);
  return bytes;
}

// Refuses a pull whose answer no message could hold, before anything is taken
// for it.
absl::Status CheckFitsInAnswer(
    const google::protobuf::RepeatedPtrField<proto::ReadRange>& ranges) {
  uint64_t bytes = 0;
  for (int i = 0; i < ranges.size(); ++i) {
    const proto::ReadRange& range = ranges[i];
    if (range.size() <= kMaxTensorBytes / sizeof(float)) {
      bytes += range.size() * sizeof(float) + range.variable().size();
      if (bytes <= kMaxTensorBytes) continue;
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "ranges[", i, "]: with the ", range.size(), " elements of variable \"",
        range.variable(), "\" from ", range.begin(), " the answer passes ",
        kMaxTensorBytes, " bytes, the most in one call"));
  }
  return absl::OkStatus();
}

// Takes a request out of the bytes in which it came.
// Errors: INVALID_ARGUMENT for bytes that are no such message, or break the
// rules of its proto.
template <typename Request>
absl::Status Decode(const grpc::ByteBuffer& bytes, Request* request,
                    std::vector<TensorPiece>* tensors) {
  const bool decoded = DecodeWithTensors(bytes, request, tensors);
  // The tensors keep what they need of them; gRPC would keep all until it is
  // done with the call. They are this call's own, as in TakeRequest.
  const_cast<grpc::ByteBuffer&>(bytes).Clear();
  if (!decoded) {
    return absl::InvalidArgumentError(absl::StrCat(
        "these bytes are no ", Request::descriptor()->full_name()));
  }
  return ValidateMessage(*request);
}
absl::Status Decode(const grpc::ByteBuffer& bytes,
                    proto::PullRequest* request) {
  grpc::ByteBuffer copy = bytes;  // of references
  const grpc::Status status =
      grpc::SerializationTraits<proto::PullRequest>::Deserialize(&copy,
                                                                 request);
  if (!status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "these bytes are no ", proto::PullRequest::descriptor()->full_name()));
  }
  return ValidateMessage(*request);
}

// Push, Pull and PushPull come as bytes, so that tensors stay where they came
// in and leave from where they lie.
using Service = proto::Shard::WithRawCallbackMethod_Push<
    proto::Shard::WithRawCallbackMethod_Pull<
        proto::Shard::WithRawCallbackMethod_PushPull<
            proto::Shard::CallbackService>>>;
using Bytes = grpc::ByteBuffer;

class ShardService final : public Service {
 public:
  explicit ShardService(const Machines& machines)
      : machines_(machines),
        shard_(machines.shard),
        strand_(machines.shard_strand) {}

  Reactor* Push(Context*, const Bytes* bytes, Bytes* response) override {
    auto* call = new UnaryCall<Bytes>(response);
    auto answer = call->TakeAnswer();
    proto::PushRequest request;
    std::vector<TensorPiece> tensors;
    if (absl::Status valid = Decode(*bytes, &request, &tensors); !valid.ok()) {
      answer(std::move(valid));
      return call;
    }
    strand_->RunOrPost(
        [shard = shard_,
         part = ToPushPart(std::move(request), std::move(tensors)),
         answer = std::move(answer)]() mutable {
          shard->Push(
              std::move(part),
              [answer = std::move(answer)](
                  const absl::StatusOr<proto::PushResponse>& response) mutable {
                answer(Encode(response));
              });
        });
    return call;
  }

  Reactor* Pull(Context*, const Bytes* bytes, Bytes* response) override {
    auto* call = new UnaryCall<Bytes>(response);
    auto answer = call->TakeAnswer();
    proto::PullRequest request;
    absl::Status valid = Decode(*bytes, &request);
    if (valid.ok()) valid = CheckFitsInAnswer(request.ranges());
    if (!valid.ok()) {
      answer(std::move(valid));
      return call;
    }
    strand_->RunOrPost([shard = shard_, request = std::move(request),
                        answer = std::move(answer)]() mutable {
      shard->Pull(request, [answer = std::move(answer)](
                               absl::StatusOr<PullReply> reply) mutable {
        answer(Encode(std::move(reply)));
      });
    });
    return call;
  }

  Reactor* PushPull(Context*, const Bytes* bytes, Bytes* response) override {
    auto* call = new UnaryCall<Bytes>(response);
    auto answer = call->TakeAnswer();
    proto::PushPullRequest request;
    std::vector<TensorPiece> tensors;
    absl::Status valid = Decode(*bytes, &request, &tensors);
    if (valid.ok()) valid = CheckFitsInAnswer(request.ranges());
    if (valid.ok() && machines_.coordinator == nullptr) {
      valid = absl::FailedPreconditionError(
          "the job has several ps: push, contribute or apply, and pull");
    }
    if (!valid.ok()) {
      answer(std::move(valid));
      return call;
    }
    holdfast::PushPull(machines_, std::move(request), std::move(tensors),
                       [answer = std::move(answer)](
                           absl::StatusOr<PushPullReply> reply) mutable {
                         answer(Encode(std::move(reply)));
                       });
    return call;
  }

  Reactor* Apply(Context*, const proto::ApplyRequest* request,
                 proto::ApplyResponse* response) override {
    return Call(&Shard::Apply, request, response);
  }
  Reactor* Pin(Context*, const proto::PinRequest* request,
               proto::PinResponse* response) override {
    return Call(&Shard::Pin, request, response);
  }
  Reactor* Unpin(Context*, const proto::UnpinRequest* request,
                 proto::UnpinResponse* response) override {
    return Call(&Shard::Unpin, request, response);
  }
  Reactor* Restore(Context*, const proto::RestoreRequest* request,
                   proto::RestoreResponse* response) override {
    return Call(&Shard::Restore, request, response);
  }
  Reactor* Commit(Context*, const proto::CommitRequest* request,
                  proto::CommitResponse* response) override {
    return Call(&Shard::Commit, request, response);
  }
  Reactor* Fence(Context*, const proto::FenceRequest* request,
                 proto::FenceResponse* response) override {
    return Call(&Shard::Fence, request, response);
  }
  Reactor* Resolve(Context*, const proto::ResolveRequest* request,
                   proto::ResolveResponse* response) override {
    return Call(&Shard::Resolve, request, response);
  }
  Reactor* Hold(Context*, const proto::HoldRequest* request,
                proto::HoldResponse* response) override {
    return Call(&Shard::Hold, request, response);
  }
  Reactor* Save(Context*, const proto::SaveRequest* request,
                proto::SaveResponse* response) override {
    return Call(&Shard::Save, request, response);
  }
  Reactor* AwaitSaved(Context*, const proto::AwaitSavedRequest* request,
                      proto::AwaitSavedResponse* response) override {
    return Call(&Shard::AwaitSaved, request, response);
  }
  Reactor* End(Context*, const proto::EndRequest* request,
               proto::EndResponse* response) override {
    return Call(&Shard::End, request, response);
  }

 private:
  template <typename Request, typename Response>
  Reactor* Call(void (Shard::*method)(const Request&, Reply<Response>),
                const Request* request, Response* response) {
    return CallMachine(strand_, &Strand::Post, shard_, method, request,
                       response);
  }

  const Machines machines_;
  Shard* const shard_;
  Strand* const strand_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeShardService(const Machines& machines) {
  return std::make_unique<ShardService>(machines);
}

}  // namespace holdfast
