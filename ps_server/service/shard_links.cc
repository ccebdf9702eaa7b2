#include "ps_server/service/shard_links.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/reply_on.h"
#include "common/rpc/channel.h"
#include "common/rpc/deadline.h"
#include "common/rpc/message_bytes.h"
#include "common/rpc/status.h"
#include "common/rpc_limits.h"
#include "common/task_id.h"
#include "proto/shard.pb.h"
#include "ps_server/shard/light_update.h"

namespace holdfast {
namespace {

// A call to another ps, from its sending to its end.
template <typename Response>
struct RemoteCall {
  grpc::ClientContext context;
  std::shared_ptr<grpc::GenericStub> stub;
  // Names the call in errors.
  std::string what;
  Reply<Response> reply;
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

  void Restore(uint32_t ps, const proto::RestoreRequest& request,
               Reply<proto::RestoreResponse> reply) override {
    if (ps == options_.local_ps) light_updates_.IsLight(request);
    Call(ps, "Restore", &Shard::Restore, request,
         options_.call_timeout + Parked(request), std::move(reply));
  }
  void Commit(uint32_t ps, const proto::CommitRequest& request,
              Reply<proto::CommitResponse> reply) override {
    Call(ps, "Commit", &Shard::Commit, request, options_.call_timeout,
         std::move(reply),
         light_updates_.IsLight(request) ? &Strand::RunOrPost : &Strand::Post);
  }
  void Fence(uint32_t ps, const proto::FenceRequest& request,
             Reply<proto::FenceResponse> reply) override {
    Call(ps, "Fence", &Shard::Fence, request, options_.call_timeout,
         std::move(reply));
  }
  void Resolve(uint32_t ps, const proto::ResolveRequest& request,
               Reply<proto::ResolveResponse> reply) override {
    Call(ps, "Resolve", &Shard::Resolve, request, options_.call_timeout,
         std::move(reply));
  }
  void Hold(uint32_t ps, const proto::HoldRequest& request,
            Reply<proto::HoldResponse> reply) override {
    Call(ps, "Hold", &Shard::Hold, request, options_.call_timeout,
         std::move(reply));
  }
  void Save(uint32_t ps, const proto::SaveRequest& request,
            Reply<proto::SaveResponse> reply) override {
    Call(ps, "Save", &Shard::Save, request, options_.call_timeout,
         std::move(reply));
  }
  void AwaitSaved(uint32_t ps, const proto::AwaitSavedRequest& request,
                  Reply<proto::AwaitSavedResponse> reply) override {
    Call(ps, "AwaitSaved", &Shard::AwaitSaved, request,
         options_.call_timeout + Parked(request), std::move(reply));
  }
  void End(uint32_t ps, const proto::EndRequest& request,
           Reply<proto::EndResponse> reply) override {
    Call(ps, "End", &Shard::End, request, options_.call_timeout,
         std::move(reply));
  }

 private:
  struct Remote {
    std::string address;
    std::shared_ptr<grpc::GenericStub> stub;
  };

  template <typename Request>
  static absl::Duration Parked(const Request& request) {
    return std::min(absl::Milliseconds(request.wait_ms()), kMaxPark);
  }

  // How the strand of the local shard is given a call.
  using Hand = void (Strand::*)(Strand::Task);
  template <typename Request, typename Response>
  using LocalMethod = void (Shard::*)(const Request&, Reply<Response>);

  template <typename Request, typename Response>
  void Call(uint32_t ps, const char* method,
            LocalMethod<Request, Response> local, const Request& request,
            absl::Duration timeout, Reply<Response> reply,
            Hand hand = &Strand::Post) {
    Reply<Response> home = ReplyOn(options_.coordinator_strand,
                                   std::move(reply), &Strand::RunOrPost);
    if (ps == options_.local_ps) {
      CallLocal(local, request, std::move(home), hand);
    } else {
      CallRemote(ps, method, request, timeout, std::move(home));
    }
  }

  template <typename Request, typename Response>
  void CallLocal(LocalMethod<Request, Response> method, const Request& request,
                 Reply<Response> reply, Hand hand) {
    (options_.local_strand->*hand)([shard = options_.local_shard, method,
                                    request,
                                    reply = std::move(reply)]() mutable {
      (shard->*method)(request, std::move(reply));
    });
  }

  template <typename Request, typename Response>
  void CallRemote(uint32_t ps, const char* method, const Request& request,
                  absl::Duration timeout, Reply<Response> reply)
      ABSL_LOCKS_EXCLUDED(mutex_) {
    const TaskId task = {kPsJob, ps};
    const auto remote = remotes_.find(ps);
    if (remote == remotes_.end()) {
      reply(absl::UnavailableError(
          absl::StrCat(method, ": ", task.ToString(), " has not joined")));
      return;
    }
    grpc::ByteBuffer bytes;
    if (absl::Status status = ToBytes(request, &bytes); !status.ok()) {
      reply(std::move(status));
      return;
    }
    auto* call = new RemoteCall<Response>;
    call->stub = remote->second.stub;
    call->what = absl::StrCat(method, " at ", task.ToString(), ", ",
                              remote->second.address);
    call->reply = std::move(reply);
    call->context.set_deadline(GrpcDeadline(SteadyNow() + timeout));
    {
      absl::MutexLock lock(&mutex_);
      under_way_.insert(&call->context);
    }
    options_.queue->Start(
        call->stub.get(), absl::StrCat("/holdfast.proto.Shard/", method),
        &call->context, bytes,
        [this, call](const grpc::Status& status, grpc::ByteBuffer* bytes) {
          Finish(call, FromGrpcStatus(status), bytes);
        });
  }

  template <typename Response>
  void Finish(RemoteCall<Response>* call, absl::Status status,
              grpc::ByteBuffer* bytes) ABSL_LOCKS_EXCLUDED(mutex_) {
    Response response;
    if (status.ok()) status = FromBytes(bytes, &response);
    if (status.ok()) {
      call->reply(std::move(response));
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

  // Used on the coordinator's strand alone.
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
