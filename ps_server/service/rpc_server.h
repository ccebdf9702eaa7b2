#ifndef HOLDFAST_PS_SERVER_SERVICE_RPC_SERVER_H_
#define HOLDFAST_PS_SERVER_SERVICE_RPC_SERVER_H_

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/byte_buffer.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/rpc/call_queue.h"
#include "common/rpc/call_threads.h"
#include "common/rpc/credentials.h"
#include "ps_server/reply/reply.h"
#include "ps_server/service/access.h"
#include "ps_server/service/listener.h"
#include "ps_server/service/rpc_figures.h"

namespace holdfast {

// Handles a call of a unary method, from the bytes of its request; the caller
// may make it, though perhaps not in whose name the request is. The answer
// may be given from any thread, and long after the caller has gone; one that is
// destroyed unused is UNAVAILABLE. Called by a thread that serves all calls: it
// must not block, nor work for long.
using RpcHandler = std::function<void(const Caller&, grpc::ByteBuffer request,
                                      Reply<grpc::ByteBuffer>)>;

// By full name, "/holdfast.proto.Shard/Push".
using RpcMethods = std::map<std::string, RpcHandler>;

// What a peer may take of a server. Who shows a certificate is one peer, over
// however many connections; without certificates each connection is.
struct RpcLimits {
  // Calls under way. A client that reads and pushes has some ten; one that
  // makes more is answered RESOURCE_EXHAUSTED.
  int calls = 4096;
  // Of these, whose message is on its way: each may take kMaxMessageBytes.
  int unread = 256;
  // For a message to come whole, and for a connection to be made; then they are
  // given up.
  absl::Duration read_timeout = absl::Seconds(60);
  absl::Duration handshake_timeout = absl::Seconds(10);
  // After this, a connection without a call is closed.
  absl::Duration idle_timeout = absl::Minutes(10);
};

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

  struct Options {
    // Where to listen: an IP address and port, as "127.0.0.1:2222"; port 0 is
    // one that is free.
    std::string address;
    // Secure: each call is of a peer that has shown a certificate, and may make
    // it (ps_server/service/access.h).
    Credentials credentials;
    // How many handlers may be slow at a time before others wait; see CallQueue
    // for what more than one cost while there is much to do.
    int threads = 1;
    RpcLimits limits;
  };

  // Listens; `port` says where. To be called once. Errors: UNAVAILABLE when it
  // cannot.
  absl::Status Start(const Options& options, RpcMethods methods, int* port);

  // Of all methods. Counts are taken one by one while calls are served: those
  // of one call may be seen in part.
  RpcFigures figures() const;

  // Refuses new calls, leaves those under way up to `patience`, and ends them
  // then, all with UNAVAILABLE. Returns when no handler runs any more. May be
  // repeated.
  void Shutdown(absl::Duration patience) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  class Call;
  class ReadWatch;

  // A method and its figures, in nanoseconds. Counted without a lock, on a
  // cache line that other methods do not share.
  struct alignas(64) Method {
    explicit Method(RpcHandler handler) : handler(std::move(handler)) {}

    const RpcHandler handler;
    std::atomic<uint64_t> calls{0};
    std::atomic<uint64_t> failed{0};
    std::atomic<int64_t> total_ns{0};
    std::atomic<int64_t> handler_ns{0};
  };

  struct PeerCalls {
    int all = 0;
    int unread = 0;
  };

  // Who has shown which certificate. Errors: UNAUTHENTICATED.
  absl::StatusOr<Caller> CallerOf(const grpc::ServerContextBase& context) const;
  // Waits for the next call, until the server has shut down.
  void Accept();

  grpc::AsyncGenericService service_;
  grpc::ServerBuilder builder_;
  const std::unique_ptr<CallQueue> queue_;
  Options options_;
  // Does not change once it listens.
  std::map<std::string, Method> methods_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<ReadWatch> read_watch_;

  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::flat_hash_map<std::string, PeerCalls> peers_ ABSL_GUARDED_BY(mutex_);
  // Calls that exist, those that are waited for among them.
  int64_t num_calls_ ABSL_GUARDED_BY(mutex_) = 0;
  // Whose message is on its way, oldest first.
  std::list<Call*> unread_ ABSL_GUARDED_BY(mutex_);
  // Those that are handled and whose answer has not been given to gRPC.
  std::set<std::shared_ptr<Call>> calls_ ABSL_GUARDED_BY(mutex_);

  std::unique_ptr<CallThreads> threads_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SERVICE_RPC_SERVER_H_
