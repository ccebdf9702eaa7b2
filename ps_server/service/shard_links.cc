#include "ps_server/service/shard_links.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/rpc/channel.h"
#include "common/rpc/status.h"
#include "common/rpc_limits.h"
#include "common/task_id.h"
#include "proto/shard.grpc.pb.h"
#include "ps_server/reply_on.h"

namespace holdfast {
namespace {

using Stub = proto::Shard::Stub;
using AsyncStub = proto::Shard::StubInterface::async_interface;

// A call to another ps, from its sending to its end.
template <typename Request, typename Response>
struct RemoteCall {
  grpc::ClientContext context;
  std::shared_ptr<Stub> stub;
  // Names the call in errors.
  std::string what;
  Request request;
  Response response;
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
    remotes_[ps] = {address, proto::Shard::NewStub(
                                 MakeChannel(address, ChannelKind::kControl))};
  }

  void Restore(uint32_t ps, const proto::RestoreRequest& request,
               Reply<proto::RestoreResponse> reply) override {
    Call(ps, "Restore", &Shard::Restore, &AsyncStub::Restore, request,
         options_.restore_timeout, std::move(reply));
  }
  void Commit(uint32_t ps, const proto::CommitRequest& request,
              Reply<proto::CommitResponse> reply) override {
    Call(ps, "Commit", &Shard::Commit, &AsyncStub::Commit, request,
         options_.call_timeout, std::move(reply));
  }
  void Fence(uint32_t ps, const proto::FenceRequest& request,
             Reply<proto::FenceResponse> reply) override {
    Call(ps, "Fence", &Shard::Fence, &AsyncStub::Fence, request,
         options_.call_timeout, std::move(reply));
  }
  void Resolve(uint32_t ps, const proto::ResolveRequest& request,
               Reply<proto::ResolveResponse> reply) override {
    Call(ps, "Resolve", &Shard::Resolve, &AsyncStub::Resolve, request,
         options_.call_timeout, std::move(reply));
  }
  void Hold(uint32_t ps, const proto::HoldRequest& request,
            Reply<proto::HoldResponse> reply) override {
    Call(ps, "Hold", &Shard::Hold, &AsyncStub::Hold, request,
         options_.call_timeout, std::move(reply));
  }
  void Save(uint32_t ps, const proto::SaveRequest& request,
            Reply<proto::SaveResponse> reply) override {
    Call(ps, "Save", &Shard::Save, &AsyncStub::Save, request,
         options_.call_timeout, std::move(reply));
  }
  void AwaitSaved(uint32_t ps, const proto::AwaitSavedRequest& request,
                  Reply<proto::AwaitSavedResponse> reply) override {
    const absl::Duration parked =
        std::min(absl::Milliseconds(request.wait_ms()), kMaxPark);
    Call(ps, "AwaitSaved", &Shard::AwaitSaved, &AsyncStub::AwaitSaved, request,
         options_.call_timeout + parked, std::move(reply));
  }
  void End(uint32_t ps, const proto::EndRequest& request,
           Reply<proto::EndResponse> reply) override {
    Call(ps, "End", &Shard::End, &AsyncStub::End, request,
         options_.call_timeout, std::move(reply));
  }

 private:
  struct Remote {
    std::string address;
    std::shared_ptr<Stub> stub;
  };

  template <typename Request, typename Response>
  using LocalMethod = void (Shard::*)(const Request&, Reply<Response>);
  template <typename Request, typename Response>
  using RemoteMethod = void (AsyncStub::*)(grpc::ClientContext*, const Request*,
                                           Response*,
                                           std::function<void(grpc::Status)>);

  template <typename Request, typename Response>
  void Call(uint32_t ps, const char* method,
            LocalMethod<Request, Response> local,
            RemoteMethod<Request, Response> remote, const Request& request,
            absl::Duration timeout, Reply<Response> reply) {
    Reply<Response> home =
        ReplyOn(options_.coordinator_strand, std::move(reply));
    if (ps == options_.local_ps) {
      CallLocal(local, request, std::move(home));
    } else {
      CallRemote(ps, method, remote, request, timeout, std::move(home));
    }
  }

  template <typename Request, typename Response>
  void CallLocal(LocalMethod<Request, Response> method, const Request& request,
                 Reply<Response> reply) {
    options_.local_strand->Post([shard = options_.local_shard, method, request,
                                 reply = std::move(reply)]() mutable {
      (shard->*method)(request, std::move(reply));
    });
  }

  template <typename Request, typename Response>
  void CallRemote(uint32_t ps, const char* name,
                  RemoteMethod<Request, Response> method,
                  const Request& request, absl::Duration timeout,
                  Reply<Response> reply) ABSL_LOCKS_EXCLUDED(mutex_) {
    const TaskId task = {kPsJob, ps};
    const auto remote = remotes_.find(ps);
    if (remote == remotes_.end()) {
      reply(absl::UnavailableError(
          absl::StrCat(name, ": ", task.ToString(), " has not joined")));
      return;
    }
    auto* call = new RemoteCall<Request, Response>;
    call->stub = remote->second.stub;
    call->what = absl::StrCat(name, " at ", task.ToString(), ", ",
                              remote->second.address);
    call->request = request;
    call->reply = std::move(reply);
    call->context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
    {
      absl::MutexLock lock(&mutex_);
      under_way_.insert(&call->context);
    }
    (call->stub->async()->*method)(
        &call->context, &call->request, &call->response,
        [this, call](grpc::Status status) { Finish(call, status); });
  }

  template <typename Request, typename Response>
  void Finish(RemoteCall<Request, Response>* call, const grpc::Status& status)
      ABSL_LOCKS_EXCLUDED(mutex_) {
    if (status.ok()) {
      call->reply(std::move(call->response));
    } else {
      const absl::Status error = FromGrpcStatus(status);
      call->reply(absl::Status(
          error.code(), absl::StrCat(call->what, ": ", error.message())));
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

  absl::Mutex mutex_;
  absl::flat_hash_set<grpc::ClientContext*> under_way_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<ShardLinks> MakeShardLinks(const ShardLinksOptions& options) {
  return std::make_unique<GrpcShardLinks>(options);
}

}  // namespace holdfast
