#ifndef HOLDFAST_PS_SERVER_SERVICE_RPC_SERVER_H_
#define HOLDFAST_PS_SERVER_SERVICE_RPC_SERVER_H_

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/byte_buffer.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/reply.h"
#include "common/rpc/call_queue.h"

namespace holdfast {

// Handles a call of a unary method, from the bytes of its request. The answer
// may be given from any thread, and long after the caller has gone; one that is
// destroyed unused is UNAVAILABLE. Called by a thread that serves all calls: it
// must not block, nor work for long.
using RpcHandler =
    std::function<void(grpc::ByteBuffer request, Reply<grpc::ByteBuffer>)>;

// By full name, "/holdfast.proto.Shard/Push".
using RpcMethods = std::map<std::string, RpcHandler>;

// A gRPC server whose calls, and those that the process makes itself, are all
// on one queue.
//
// Thread-safe.
class RpcServer {
 public:
  RpcServer();
  // As Shutdown without patience. No call made by way of queue() may be under
  // way.
  ~RpcServer();

  RpcServer(const RpcServer&) = delete;
  RpcServer& operator=(const RpcServer&) = delete;

  // Polled from Start until this object is destroyed.
  CallQueue* queue() { return queue_.get(); }

  // Listens on `address`, host:port, where port 0 is one that is free; `port`
  // says which. To be called once. `threads`: how many serve; see CallQueue for
  // what more than one cost.
  // Errors: UNAVAILABLE when it cannot listen.
  absl::Status Start(const std::string& address, RpcMethods methods,
                     int threads, int* port);

  // Refuses new calls, leaves those under way up to `patience`, and ends them
  // then, all with UNAVAILABLE. May be repeated.
  void Shutdown(absl::Duration patience) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  class Call;

  // Waits for the next call, until the server has shut down.
  void Accept();

  grpc::AsyncGenericService service_;
  grpc::ServerBuilder builder_;
  const std::unique_ptr<CallQueue> queue_;
  RpcMethods methods_;
  std::unique_ptr<grpc::Server> server_;

  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // Those that are handled and whose answer has not been given to gRPC.
  std::set<std::shared_ptr<Call>> calls_ ABSL_GUARDED_BY(mutex_);

  std::optional<CallThreads> threads_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SERVICE_RPC_SERVER_H_
