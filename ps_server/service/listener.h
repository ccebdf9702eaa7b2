// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_SERVICE_LISTENER_H_
#define HOLDFAST_PS_SERVER_SERVICE_LISTENER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"

namespace holdfast {

// Accepts connections for a gRPC server, on a thread of its own. gRPC 1.51, if
// it listened itself, would stop listening for good once the process had no
// file descriptor left, and anyone who can connect could use up the
// descriptors.
//
// A quarter of the descriptors that the process may have is kept for files,
// however many connections there are: while fewer descriptors are free, new
// connections are closed at once.
//
// Thread-compatible.
class Listener {
 public:
  // Binds to `address`, an IP address and port such as "127.0.0.1:0" or
  // "[::1]:1". Connections wait until Start. Errors: UNAVAILABLE, with the
  // reason.
  static absl::StatusOr<std::unique_ptr<Listener>> Bind(
      const std::string& address);
  // Stops accepting connections.
  ~Listener();

  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  int port() const { return port_; }
  int fd() const { return socket_; }

  // Passes each connection to `take`, which then owns it. Call it once.
  void Start(std::function<void(int fd)> take);

 private:
  // Whether there is room for another connection.
  class Room;

  Listener(int socket, int port);
  void Accept(const std::function<void(int fd)>& take);
  // Wait for a connection, or for a short time. Return false once the Listener
  // is being destroyed.
  bool AwaitConnection();
  bool Pause();

  const int socket_;
  const int port_;
  const int quit_;  // an eventfd
  std::thread thread_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SERVICE_LISTENER_H_
