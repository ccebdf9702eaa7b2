// SPDX-License-Identifier: Apache-2.0
#include "ps_server/service/shard_links.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <variant>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"
#include "common/job/task_id.h"
#include "common/rpc/channel.h"
#include "common/rpc/deadline.h"
#include "common/rpc/message_bytes.h"
#include "common/rpc/rpc_limits.h"
#include "common/rpc/status.h"
#include "proto/shard.pb.h"
#include "ps_server/reply/reply_on.h"
#include "ps_server/shard/light_update.h"

namespace holdfast {
namespace {

// A call to another ps, from when it is sent to its end.
struct RemoteCall {
  grpc::ClientContext context;
  std::shared_ptr<grpc::GenericStub> stub;
  // The call's name in errors.
  std::string what;
  Reply<ShardResponse> reply;
};

class GrpcShardLinks final : public ShardLinks {
 public:
  explicit GrpcShardLinks(const ShardLinksOptions& options)
      : options_(options) {}

  ~GrpcShardLinks() override {
    absl::MutexLock lock(&mutex_);
    for (grpc::ClientContext* context : under_way_) context->TryCancel();
    const auto none_under_way = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return under_way_.empty();
    };
    mutex_.Await(absl::Condition(&none_under_way));
  }

  void SetAddress(uint32_t ps, const std::string& address) override {
    remotes_[ps] = {address, std::make_shared<grpc::GenericStub>(
                                 MakeChannel(address, ps, ChannelKind::kControl,
                                             options_.credentials))};
  }

  void Send(uint32_t ps, const ShardRequest& request,
            Reply<ShardResponse> reply) override {
    Reply<ShardResponse> home = ReplyOn(options_.coordinator_strand,
                                        std::move(reply), &Strand::RunOrPost);
    std::visit(
        [&](const auto& typed) {
          if (ps == options_.local_ps) {
            CallLocal(typed, std::move(home));
          } else {
            CallRemote(ps, typed, std::move(home));
          }
        },
        request);
  }

 private:
  struct Remote {
    std::string address;
    std::shared_ptr<grpc::GenericStub> stub;
  };

  template <typename Request>
  void CallLocal(const Request& request, Reply<ShardResponse> reply) {
    const auto hand =
        light_updates_.IsLight(request) ? &Strand::RunOrPost : &Strand::Post;
    (options_.local_strand->*hand)([shard = options_.local_shard,
                                    recorder = options_.recorder, request,
                                    reply = std::move(reply)]() mutable {
      (shard->*kShardHandler<Request>)(request,
                                       Recorded(recorder, request,
                                                OfMethod<Request>(
                                                    std::move(reply))));
    });
  }

  template <typename Request>
  void CallRemote(uint32_t ps, const Request& request,
                  Reply<ShardResponse> reply) ABSL_LOCKS_EXCLUDED(mutex_) {
    using Method = ShardMethod<Request>;
    const TaskId task = {kPsJob, ps};
    const auto remote = remotes_.find(ps);
    if (remote == remotes_.end()) {
      reply(absl::UnavailableError(absl::StrCat(
          Method::kName, ": ", task.ToString(), " has not joined")));
      return;
    }
    grpc::ByteBuffer bytes;
    if (absl::Status status = ToBytes(request, &bytes); !status.ok()) {
      reply(std::move(status));
      return;
    }
    auto* call = new RemoteCall;
    call->stub = remote->second.stub;
    call->what = absl::StrCat(Method::kName, " at ", task.ToString(), ", ",
                              remote->second.address);
    call->reply = std::move(reply);
    call->context.set_deadline(GrpcDeadline(
        SteadyNow() + options_.call_timeout + LongestPark(request)));
    {
      absl::MutexLock lock(&mutex_);
      under_way_.insert(&call->context);
    }
    options_.queue->Start(
        call->stub.get(), absl::StrCat("/holdfast.proto.Shard/", Method::kName),
        &call->context, bytes,
        [this, call](const grpc::Status& status, grpc::ByteBuffer* bytes) {
          Finish<typename Method::Response>(call, FromGrpcStatus(status),
                                            bytes);
        });
  }

  template <typename Response>
  void Finish(RemoteCall* call, absl::Status status, grpc::ByteBuffer* bytes)
      ABSL_LOCKS_EXCLUDED(mutex_) {
    Response response;
    if (status.ok()) status = FromBytes(bytes, &response);
    if (status.ok()) {
      call->reply(ShardResponse(std::move(response)));
    } else {
      call->reply(absl::Status(
          status.code(), absl::StrCat(call->what, ": ", status.message())));
    }
    {
      // The last access to *this: the destructor may be waiting for it.
      absl::MutexLock lock(&mutex_);
      under_way_.erase(&call->context);
    }
    delete call;
  }

  const ShardLinksOptions options_;

  // Used only on the coordinator's strand.
  std::map<uint32_t, Remote> remotes_;
  LightUpdates light_updates_{options_.local_ps};

  absl::Mutex mutex_;
  absl::flat_hash_set<grpc::ClientContext*> under_way_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<ShardLinks> MakeShardLinks(const ShardLinksOptions& options) {
  return std::make_unique<GrpcShardLinks>(options);
}

}  // namespace holdfast
