// SPDX-License-Identifier: Apache-2.0
#include "ps_server/service/rpc_server.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/alarm.h>
#include <grpcpp/security/auth_context.h>
#include <grpcpp/security/server_credentials.h>

#include <atomic>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/rpc/channel.h"
#include "common/rpc/deadline.h"
#include "common/rpc/rpc_limits.h"
#include "common/rpc/status.h"

namespace holdfast {
namespace {

// How long sending the last answers may take before connections are closed.
constexpr absl::Duration kLastWords = absl::Milliseconds(200);

void AddTo(std::atomic<int64_t>* sum, absl::Duration duration) {
  sum->fetch_add(absl::ToInt64Nanoseconds(duration), std::memory_order_relaxed);
}

absl::Status Stopping() {
  return absl::UnavailableError("this ps is stopping");
}

}  // namespace

// One call, from the wait for it until gRPC has sent its answer. Its events
// happen one after the other; only the answer may come from any thread.
//
// It is owned by gRPC while gRPC has its tag (self_), by calls_ until it is
// answered, and by each thread that works on it: the thread that runs its
// handler owns it until the handler returns, even if another thread answers it
// meanwhile.
class RpcServer::Call final : public CallQueue::Event,
                              public std::enable_shared_from_this<Call> {
 public:
  explicit Call(RpcServer* server) : server_(server), counted_(server) {}

  void Accept() {
    grpc::CompletionQueue* const queue = server_->queue_->get();
    server_->service_.RequestCall(
        &context_, &stream_, queue,
        static_cast<grpc::ServerCompletionQueue*>(queue), Tag());
  }

  void Happen(bool ok) override {
    const std::shared_ptr<Call> self = std::move(self_);
    switch (stage_) {
      case Stage::kAccept:
        if (!ok) return Leave();  // the server has shut down
        server_->Accept();
        return Admit();
      case Stage::kRead:
        HaveRead();
        return Handle(ok);
      case Stage::kAnswer:
        return Leave();
    }
  }

  // When gRPC was asked for the call's message.
  absl::Time read_since() const { return read_since_; }
  // Makes reading the message fail.
  void Cancel() { context_.TryCancel(); }

  // Only the first answer counts.
  void Answer(absl::StatusOr<grpc::ByteBuffer> response)
      ABSL_LOCKS_EXCLUDED(server_->mutex_) {
    if (answered_.exchange(true)) return;
    AddTo(&method_->total_ns, SteadyNow() - handled_since_);
    method_->calls.fetch_add(1, std::memory_order_relaxed);
    if (!response.ok()) method_->failed.fetch_add(1, std::memory_order_relaxed);
    Finish(std::move(response));
    absl::MutexLock lock(&server_->mutex_);
    server_->calls_.erase(shared_from_this());
  }

 private:
  enum class Stage { kAccept, kRead, kAnswer };

  // Counts the calls that exist. Declared first and so destroyed last: after
  // that the server may be destroyed.
  class Counted {
   public:
    explicit Counted(RpcServer* server) : server_(server) {
      absl::MutexLock lock(&server_->mutex_);
      ++server_->num_calls_;
    }
    ~Counted() {
      absl::MutexLock lock(&server_->mutex_);
      --server_->num_calls_;
    }

   private:
    RpcServer* const server_;
  };

  // The reply that the handler gets. A call that the server has ended no longer
  // exists; nor may the server itself.
  class Answerer {
   public:
    explicit Answerer(std::weak_ptr<Call> call) : call_(std::move(call)) {}
    Answerer(Answerer&&) noexcept = default;
    ~Answerer() { (*this)(Stopping()); }
    void operator()(absl::StatusOr<grpc::ByteBuffer> response) {
      const std::shared_ptr<Call> call = std::exchange(call_, {}).lock();
      if (call != nullptr) call->Answer(std::move(response));
    }

   private:
    std::weak_ptr<Call> call_;
  };

  // The tag for gRPC, which owns the call until it returns the tag.
  void* Tag() {
    self_ = shared_from_this();
    return static_cast<Event*>(this);
  }

  // Called before the call's message is read.
  void Admit() ABSL_LOCKS_EXCLUDED(server_->mutex_) {
    stage_ = Stage::kAnswer;
    if (absl::Status status = CheckAllowed(); !status.ok()) {
      return Finish(std::move(status));
    }
    if (absl::Status status = Enter(); !status.ok()) {
      return Finish(std::move(status));
    }
    stage_ = Stage::kRead;
    stream_.Read(&request_, Tag());
  }

  // Checks that the method exists, and that the caller may call it.
  absl::Status CheckAllowed() {
    const auto method = server_->methods_.find(context_.method());
    if (method == server_->methods_.end()) {
      return absl::UnimplementedError(
          absl::StrCat("no such method: ", context_.method()));
    }
    method_ = &method->second;
    HOLDFAST_ASSIGN_OR_RETURN(auto caller, server_->CallerOf(context_));
    caller_ = std::move(caller);
    if (!caller_.has_value()) return absl::OkStatus();
    return CheckAccess(server_->options_.credentials.identity().training,
                       caller_, context_.method());
  }

  // Counts the call, if its peer may have another.
  absl::Status Enter() ABSL_LOCKS_EXCLUDED(server_->mutex_) {
    std::string peer = caller_.has_value() ? caller_->ToUri() : context_.peer();
    const RpcLimits& limits = server_->options_.limits;
    absl::MutexLock lock(&server_->mutex_);
    PeerCalls& calls = server_->peers_[peer];
    if (calls.all >= limits.calls || calls.unread >= limits.unread) {
      return absl::ResourceExhaustedError(
          absl::StrCat(peer, " has ", calls.all, " calls in progress, ",
                       calls.unread, " of them not read yet; at most ",
                       limits.calls, " and ", limits.unread));
    }
    ++calls.all;
    ++calls.unread;
    peer_ = std::move(peer);
    read_since_ = SteadyNow();
    unread_ = server_->unread_.insert(server_->unread_.end(), this);
    return absl::OkStatus();
  }
  void HaveRead() ABSL_LOCKS_EXCLUDED(server_->mutex_) {
    stage_ = Stage::kAnswer;
    absl::MutexLock lock(&server_->mutex_);
    --server_->peers_[peer_].unread;
    server_->unread_.erase(unread_);
  }
  // Called when gRPC is done with the call.
  void Leave() ABSL_LOCKS_EXCLUDED(server_->mutex_) {
    if (peer_.empty()) return;
    absl::MutexLock lock(&server_->mutex_);
    const auto calls = server_->peers_.find(peer_);
    if (--calls->second.all == 0) server_->peers_.erase(calls);
  }

  void Handle(bool ok) ABSL_LOCKS_EXCLUDED(server_->mutex_) {
    if (!ok) {
      return Finish(absl::InvalidArgumentError("the call has no message"));
    }
    handled_since_ = SteadyNow();
    bool stopping;
    {
      absl::MutexLock lock(&server_->mutex_);
      stopping = server_->stopping_;
      if (!stopping) server_->calls_.insert(shared_from_this());
    }
    if (stopping) return Finish(Stopping());
    grpc::ByteBuffer request;
    request.Swap(&request_);
    method_->handler(caller_, std::move(request), Answerer(weak_from_this()));
    AddTo(&method_->handler_ns, SteadyNow() - handled_since_);
  }

  void Finish(absl::StatusOr<grpc::ByteBuffer> response) {
    if (response.ok()) {
      stream_.WriteAndFinish(*response, grpc::WriteOptions(), grpc::Status::OK,
                             Tag());
    } else {
      stream_.Finish(ToGrpcStatus(response.status()), Tag());
    }
  }

  RpcServer* const server_;
  const Counted counted_;
  // Set while gRPC has this object's tag.
  std::shared_ptr<Call> self_;
  Stage stage_ = Stage::kAccept;
  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter stream_{&context_};
  grpc::ByteBuffer request_;
  Caller caller_;
  Method* method_ = nullptr;
  // When the call's message had arrived.
  absl::Time handled_since_;
  // The peer whose counts include this call; empty if none do.
  std::string peer_;
  absl::Time read_since_;
  std::list<Call*>::iterator unread_;
  std::atomic<bool> answered_{false};
};

// Gives up calls whose message does not arrive.
class RpcServer::ReadWatch final : public CallQueue::Event {
 public:
  explicit ReadWatch(RpcServer* server) : server_(server) {}

  void Start() ABSL_EXCLUSIVE_LOCKS_REQUIRED(server_->mutex_) {
    const absl::Duration timeout = server_->options_.limits.read_timeout;
    alarm_.Set(server_->queue_->get(), GrpcDeadline(SteadyNow() + timeout / 4),
               static_cast<Event*>(this));
  }
  void Cancel() { alarm_.Cancel(); }

  void Happen(bool) override ABSL_LOCKS_EXCLUDED(server_->mutex_) {
    const absl::Time late = SteadyNow() - server_->options_.limits.read_timeout;
    absl::MutexLock lock(&server_->mutex_);
    if (server_->stopping_) return;
    for (Call* call : server_->unread_) {
      if (call->read_since() > late) break;
      call->Cancel();
    }
    Start();
  }

 private:
  RpcServer* const server_;
  grpc::Alarm alarm_;
};

RpcServer::RpcServer()
    : queue_(std::make_unique<CallQueue>(builder_.AddCompletionQueue())) {}

RpcServer::~RpcServer() { Shutdown(absl::ZeroDuration()); }

absl::Status RpcServer::Start(const Options& options, RpcMethods methods,
                              int* port) {
  options_ = options;
  for (auto& [name, handler] : methods) {
    methods_.try_emplace(name, std::move(handler));
  }
  auto listener = Listener::Bind(options_.address);
  if (!listener.ok()) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ",
                                               options_.address, ": ",
                                               listener.status().message()));
  }
  listener_ = *std::move(listener);
  *port = listener_->port();
  const auto argument = [this](const char* name, absl::Duration duration) {
    builder_.AddChannelArgument(
        name, static_cast<int>(absl::ToInt64Milliseconds(duration)));
  };
  builder_.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder_.SetMaxSendMessageSize(kMaxMessageBytes);
  // Allows clients to ping connections on which their calls are parked.
  argument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
           kKeepaliveTime / 2);
  // Makes the server find clients that have vanished, by pings of its own.
  argument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTime);
  argument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeout);
  builder_.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                              options_.limits.calls);
  argument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
           options_.limits.handshake_timeout);
  argument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, options_.limits.idle_timeout);
  acceptor_ = builder_.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      options_.credentials.ForServer());
  builder_.RegisterAsyncGenericService(&service_);
  server_ = builder_.BuildAndStart();
  if (server_ == nullptr) {
    return absl::UnavailableError("gRPC failed to start, and gives no reason");
  }
  auto threads = CallThreads::Start(queue_.get(), options_.threads, "rpc");
  if (!threads.ok()) {
    std::exchange(server_, nullptr)->Shutdown();
    return absl::UnavailableError(threads.status().message());
  }
  threads_ = *std::move(threads);
  for (int i = 0; i < options_.threads; ++i) Accept();
  {
    absl::MutexLock lock(&mutex_);
    read_watch_ = std::make_unique<ReadWatch>(this);
    read_watch_->Start();
  }
  listener_->Start([this, listener_fd = listener_->fd()](int fd) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters
        connection;
    connection.listener_fd = listener_fd;
    connection.fd = fd;
    acceptor_->HandleNewConnection(&connection);
  });
  return absl::OkStatus();
}

absl::StatusOr<Caller> RpcServer::CallerOf(
    const grpc::ServerContextBase& context) const {
  if (!options_.credentials.secure()) return Caller();
  const std::shared_ptr<const grpc::AuthContext> peer = context.auth_context();
  std::optional<grpc::string_ref> uri;
  if (peer != nullptr) {
    for (const grpc::string_ref& name :
         peer->FindPropertyValues(GRPC_PEER_URI_PROPERTY_NAME)) {
      if (!IsIdentityUri({name.data(), name.size()})) continue;
      if (uri.has_value()) {
        return absl::UnauthenticatedError(
            "the certificate has more than one identity");
      }
      uri = name;
    }
  }
  if (!uri.has_value()) {
    return absl::UnauthenticatedError(
        "the certificate has no identity (a URI that begins with "
        "holdfast://)");
  }
  const absl::StatusOr<Identity> identity =
      ParseIdentity({uri->data(), uri->size()});
  if (!identity.ok()) {
    return absl::UnauthenticatedError(identity.status().message());
  }
  return Caller(*identity);
}

RpcFigures RpcServer::figures() const {
  RpcFigures figures;
  for (const auto& [name, method] : methods_) {
    MethodFigures& of = figures[name];
    of.calls = method.calls.load(std::memory_order_relaxed);
    of.failed = method.failed.load(std::memory_order_relaxed);
    of.total_time =
        absl::Nanoseconds(method.total_ns.load(std::memory_order_relaxed));
    of.handler_time =
        absl::Nanoseconds(method.handler_ns.load(std::memory_order_relaxed));
  }
  return figures;
}

void RpcServer::Accept() { std::make_shared<Call>(this)->Accept(); }

void RpcServer::Shutdown(absl::Duration patience) {
  if (server_ == nullptr) return;
  const auto none = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return calls_.empty();
  };
  std::vector<std::shared_ptr<Call>> late;
  {
    absl::MutexLock lock(&mutex_);
    if (std::exchange(stopping_, true)) return;
    mutex_.AwaitWithTimeout(absl::Condition(&none), patience);
    late.assign(calls_.begin(), calls_.end());
  }
  for (const std::shared_ptr<Call>& call : late) call->Answer(Stopping());
  late.clear();
  {
    // Waits until no thread is about to answer.
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&none));
  }
  read_watch_->Cancel();
  listener_.reset();
  server_->Shutdown(GrpcDeadline(SteadyNow() + kLastWords));
  // A call that has arrived may still wait in the queue, and any request to
  // gRPC on its behalf after the queue is closed would end the process. The
  // calls of handlers that still run have been answered, but the handlers must
  // return.
  absl::MutexLock lock(&mutex_);
  const auto all_gone = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return num_calls_ == 0;
  };
  mutex_.Await(absl::Condition(&all_gone));
}

}  // namespace holdfast
