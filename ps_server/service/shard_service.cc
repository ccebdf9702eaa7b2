#include "ps_server/service/shard_service.h"

#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/rpc/tensor_codec.h"
#include "common/rpc_limits.h"
#include "proto/shard.grpc.pb.h"
#include "ps_server/service/unary_call.h"

namespace holdfast {
namespace {

using Context = grpc::CallbackServerContext;
using Reactor = grpc::ServerUnaryReactor;

// Of a message that the tensors of an answer may fill; the rest is for its
// other fields.
constexpr uint64_t kMaxTensorBytes = kMaxMessageBytes - (64 << 10);

PushPart ToPushPart(proto::PushRequest request) {
  PushPart part;
  part.sender = std::move(*request.mutable_sender());
  part.sequence = PushSequence(request.sequence());
  part.step = GlobalStep(request.step());
  part.part = request.part();
  part.num_parts = request.num_parts();
  part.acked_through = PushSequence(request.acked_through());
  part.tensors = TakeTensors(request.mutable_tensors());
  return part;
}

absl::StatusOr<proto::PullResponse> ToPullResponse(
    absl::StatusOr<PullReply> reply) {
  if (!reply.ok()) return std::move(reply).status();
  // What one variable's name and shape add to each of its ranges is known only
  // here.
  const int64_t bytes = EncodedBytes(reply->tensors);
  if (bytes > kMaxMessageBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("ranges: ", bytes, " bytes to answer with, at most ",
                     kMaxMessageBytes, " in one call; ask for fewer at once"));
  }
  proto::PullResponse response;
  response.set_generation(reply->generation.value());
  *response.mutable_state() = std::move(reply->state);
  response.set_version(reply->version.value());
  AddTensors(reply->tensors, response.mutable_tensors());
  return response;
}

// Refuses a pull whose answer no message could hold, before anything is taken
// for it.
absl::Status CheckFitsInAnswer(const proto::PullRequest& request) {
  uint64_t bytes = 0;
  for (int i = 0; i < request.ranges_size(); ++i) {
    const proto::ReadRange& range = request.ranges(i);
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

class ShardService final : public proto::Shard::CallbackService {
 public:
  ShardService(Shard* shard, Strand* strand) : shard_(shard), strand_(strand) {}

  Reactor* Push(Context*, const proto::PushRequest* request,
                proto::PushResponse* response) override {
    auto* call = new UnaryCall<proto::PushResponse>(response);
    auto answer = call->TakeAnswer();
    if (absl::Status valid = ValidateMessage(*request); !valid.ok()) {
      answer(std::move(valid));
      return call;
    }
    strand_->Post([shard = shard_, part = ToPushPart(TakeRequest(request)),
                   answer = std::move(answer)]() mutable {
      shard->Push(std::move(part), std::move(answer));
    });
    return call;
  }

  Reactor* Pull(Context*, const proto::PullRequest* request,
                proto::PullResponse* response) override {
    auto* call = new UnaryCall<proto::PullResponse>(response);
    auto answer = call->TakeAnswer();
    absl::Status valid = ValidateMessage(*request);
    if (valid.ok()) valid = CheckFitsInAnswer(*request);
    if (!valid.ok()) {
      answer(std::move(valid));
      return call;
    }
    strand_->Post([shard = shard_, request = TakeRequest(request),
                   answer = std::move(answer)]() mutable {
      shard->Pull(request, [answer = std::move(answer)](
                               absl::StatusOr<PullReply> reply) mutable {
        answer(ToPullResponse(std::move(reply)));
      });
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
    return CallMachine(strand_, shard_, method, request, response);
  }

  Shard* const shard_;
  Strand* const strand_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeShardService(Shard* shard, Strand* strand) {
  return std::make_unique<ShardService>(shard, strand);
}

}  // namespace holdfast
