// SPDX-License-Identifier: Apache-2.0
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

// Handles a call of a unary method, from the bytes of its request. The server
// has checked that the caller may call the method, but not that the caller is
// the request's sender. The answer may be given from any thread, and long after
// the caller has gone; a reply that is destroyed unused answers UNAVAILABLE.
// The handler is called by a thread that serves all calls, so it must not block
// or work for long.
using RpcHandler = std::function<void(const Caller&, grpc::ByteBuffer request,
                                      Reply<grpc::ByteBuffer>)>;

// Indexed by full name, such as "/holdfast.proto.Shard/Push".
using RpcMethods = std::map<std::string, RpcHandler>;

// What one peer may use of a server. All connections of the owner of one
// certificate are one peer; without certificates, each connection is a peer.
struct RpcLimits {
  // The maximum number of calls in progress. A client that reads and pushes has
  // about ten; calls beyond the limit are answered RESOURCE_EXHAUSTED.
  int calls = 4096;
  // The maximum number of calls in progress whose message has not arrived
  // completely; each may take kMaxMessageBytes of memory.
  int unread = 256;
  // How long a message may take to arrive, and how long a connection may take
  // to be made, before the server gives it up.
  absl::Duration read_timeout = absl::Seconds(60);
  absl::Duration handshake_timeout = absl::Seconds(10);
  // How long a connection may have no call before it is closed.
  absl::Duration idle_timeout = absl::Minutes(10);
};

// A gRPC server whose calls share one queue with the calls that the process
// makes itself.
//
// Thread-safe.
class RpcServer {
 public:
  RpcServer();
  // Shuts down at once, ending the calls in progress. No call made through
  // queue() may be in progress.
  ~RpcServer();

  RpcServer(const RpcServer&) = delete;
  RpcServer& operator=(const RpcServer&) = delete;

  // The queue of the server's calls. It is polled from Start until this object
  // is destroyed.
  CallQueue* queue() { return queue_.get(); }

  struct Options {
    // The address to listen on: an IP address and port, such as
    // "127.0.0.1:2222"; port 0 stands for a free one.
    std::string address;
    // If secure, each call comes from a peer that has presented a certificate
    // and may make the call (ps_server/service/access.h).
    Credentials credentials;
    // How many handlers may be slow at the same time before other calls wait.
    // CallQueue says what more than one thread costs under load.
    int threads = 1;
    RpcLimits limits;
  };

  // Starts listening, and sets `port`. Call it once. Errors: UNAVAILABLE when
  // it cannot listen.
  absl::Status Start(const Options& options, RpcMethods methods, int* port);

  // The figures of all methods. They are read one by one while calls are
  // served, so some may include a call that others do not include yet.
  RpcFigures figures() const;

  // Refuses new calls. Waits up to `patience` for the calls in progress, and
  // then ends them. Refused and ended calls are answered UNAVAILABLE. Returns
  // once no handler is running. May be called repeatedly.
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

  // The caller, from its certificate. Errors: UNAUTHENTICATED.
  absl::StatusOr<Caller> CallerOf(const grpc::ServerContextBase& context) const;
  // Waits for the next call, until the server has shut down.
  void Accept();

  grpc::AsyncGenericService service_;
  grpc::ServerBuilder builder_;
  const std::unique_ptr<CallQueue> queue_;
  Options options_;
  // Does not change once the server listens.
  std::map<std::string, Method> methods_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<ReadWatch> read_watch_;

  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::flat_hash_map<std::string, PeerCalls> peers_ ABSL_GUARDED_BY(mutex_);
  // The number of Call objects, including those that wait for a call.
  int64_t num_calls_ ABSL_GUARDED_BY(mutex_) = 0;
  // Calls whose message has not arrived completely, oldest first.
  std::list<Call*> unread_ ABSL_GUARDED_BY(mutex_);
  // Calls that are being handled and whose answer has not been given to gRPC.
  std::set<std::shared_ptr<Call>> calls_ ABSL_GUARDED_BY(mutex_);

  std::unique_ptr<CallThreads> threads_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SERVICE_RPC_SERVER_H_
