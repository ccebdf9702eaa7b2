#ifndef HOLDFAST_PS_SERVER_SERVICE_LISTENER_H_
#define HOLDFAST_PS_SERVER_SERVICE_LISTENER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"

namespace holdfast {

// Accepts connections, on a thread of its own, for a server that cannot refuse
// any: gRPC 1.51 stops to listen for good once a process has no file descriptor
// left, which whoever can connect could bring about.
//
// The last quarter of the descriptors that the process may have is not for
// connections, so that files can be opened however many there are: while less
// is free, new connections are closed at once.
//
// Thread-compatible.
class Listener {
 public:
  // Binds to `address`, an IP address and port as "127.0.0.1:0" or "[::1]:1",
  // whose connections wait until Start. Errors: UNAVAILABLE, with the reason.
  static absl::StatusOr<std::unique_ptr<Listener>> Bind(
      const std::string& address);
  // Accepts no more.
  ~Listener();

  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  int port() const { return port_; }
  int fd() const { return socket_; }

  // Gives each connection to `take`, which owns it then. To be called once.
  void Start(std::function<void(int fd)> take);

 private:
  // Whether there is room for another connection.
  class Room;

  Listener(int socket, int port);
  void Accept(const std::function<void(int fd)>& take);
  // Until Listener is destroyed: returns false.
  bool AwaitConnection();
  bool Pause();

  const int socket_;
  const int port_;
  const int quit_;  // an eventfd
  std::thread thread_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SERVICE_LISTENER_H_
