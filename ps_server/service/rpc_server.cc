#include "ps_server/service/rpc_server.h"

#include <grpcpp/security/server_credentials.h>

#include <atomic>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/rpc/channel.h"
#include "common/rpc/status.h"
#include "common/rpc_limits.h"

namespace holdfast {
namespace {

// How long the last answers may take to leave before connections are closed.
constexpr absl::Duration kLastWords = absl::Milliseconds(200);

absl::Status Stopping() {
  return absl::UnavailableError("this ps is stopping");
}

}  // namespace

// One call, from before it comes until gRPC has sent its answer. An event
// happens after the other; only the answer may come from anywhere.
class RpcServer::Call final : public CallQueue::Event,
                              public std::enable_shared_from_this<Call> {
 public:
  explicit Call(RpcServer* server) : server_(server) {}

  void Accept() {
    self_ = shared_from_this();
    grpc::CompletionQueue* const queue = server_->queue_->get();
    server_->service_.RequestCall(
        &context_, &stream_, queue,
        static_cast<grpc::ServerCompletionQueue*>(queue), tag());
  }

  void Happen(bool ok) override {
    switch (stage_) {
      case Stage::kAccept:
        if (!ok) return self_.reset();  // the server has shut down
        server_->Accept();
        stage_ = Stage::kRead;
        return stream_.Read(&request_, tag());
      case Stage::kRead:
        stage_ = Stage::kAnswer;
        return Handle(ok);
      case Stage::kAnswer:
        return self_.reset();
    }
  }

  // The first answer counts.
  void Answer(absl::StatusOr<grpc::ByteBuffer> response)
      ABSL_LOCKS_EXCLUDED(server_->mutex_) {
    if (answered_.exchange(true)) return;
    Finish(std::move(response));
    // The last access to the server: it may be waiting for it.
    absl::MutexLock lock(&server_->mutex_);
    server_->calls_.erase(shared_from_this());
  }

 private:
  enum class Stage { kAccept, kRead, kAnswer };

  // What the handler answers by. A call that the server has ended is gone, as
  // the server itself may be.
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

  void* tag() { return static_cast<Event*>(this); }

  void Handle(bool ok) ABSL_LOCKS_EXCLUDED(server_->mutex_) {
    if (!ok) {
      return Finish(absl::InvalidArgumentError("the call has no message"));
    }
    const auto method = server_->methods_.find(context_.method());
    if (method == server_->methods_.end()) {
      return Finish(absl::UnimplementedError(
          absl::StrCat("no such method: ", context_.method())));
    }
    bool stopping;
    {
      absl::MutexLock lock(&server_->mutex_);
      stopping = server_->stopping_;
      if (!stopping) server_->calls_.insert(shared_from_this());
    }
    if (stopping) return Finish(Stopping());
    grpc::ByteBuffer request;
    request.Swap(&request_);
    method->second(std::move(request), Answerer(weak_from_this()));
  }

  void Finish(absl::StatusOr<grpc::ByteBuffer> response) {
    if (response.ok()) {
      stream_.WriteAndFinish(*response, grpc::WriteOptions(), grpc::Status::OK,
                             tag());
    } else {
      stream_.Finish(ToGrpcStatus(response.status()), tag());
    }
  }

  RpcServer* const server_;
  // For as long as gRPC has this object's tag.
  std::shared_ptr<Call> self_;
  Stage stage_ = Stage::kAccept;
  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter stream_{&context_};
  grpc::ByteBuffer request_;
  std::atomic<bool> answered_{false};
};

RpcServer::RpcServer()
    : queue_(std::make_unique<CallQueue>(builder_.AddCompletionQueue())) {}

RpcServer::~RpcServer() { Shutdown(absl::ZeroDuration()); }

absl::Status RpcServer::Start(const std::string& address, RpcMethods methods,
                              int threads, int* port) {
  methods_ = std::move(methods);
  builder_.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder_.SetMaxSendMessageSize(kMaxMessageBytes);
  // Otherwise two processes could listen on one port, and each would get some
  // of the calls.
  builder_.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // Clients ping connections on which their calls are parked.
  builder_.AddChannelArgument(
      GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
      static_cast<int>(absl::ToInt64Milliseconds(kKeepaliveTime / 2)));
  *port = 0;
  builder_.AddListeningPort(address, grpc::InsecureServerCredentials(), port);
  builder_.RegisterAsyncGenericService(&service_);
  server_ = builder_.BuildAndStart();
  if (server_ == nullptr || *port == 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", address, ": gRPC does not say why"));
  }
  for (int i = 0; i < threads; ++i) Accept();
  threads_.emplace(queue_.get(), threads, "rpc");
  return absl::OkStatus();
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
    // Nobody is about to answer any more.
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&none));
  }
  server_->Shutdown(absl::ToChronoTime(absl::Now() + kLastWords));
}

}  // namespace holdfast
