// SPDX-License-Identifier: Apache-2.0
#include "ps_server/service/listener.h"

#include <dirent.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "glog/logging.h"

namespace holdfast {
namespace {

// How long the thread pauses when nothing can be accepted, and how often it
// checks whether there is room again.
constexpr absl::Duration kPause = absl::Milliseconds(100);
constexpr absl::Duration kReportEvery = absl::Seconds(10);
// How long a peer may leave sent bytes unacknowledged.
constexpr absl::Duration kSilence = absl::Seconds(30);

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

absl::StatusOr<AddressList> Parse(const std::string& address) {
  const size_t colon = address.rfind(':');
  absl::string_view host = absl::string_view(address).substr(0, colon);
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  addrinfo* list = nullptr;
  const int error =
      colon == std::string::npos
          ? EAI_NONAME
          : getaddrinfo(std::string(host).c_str(),
                        address.substr(colon + 1).c_str(), &hints, &list);
  if (error != 0) return absl::UnavailableError(gai_strerror(error));
  return AddressList(list, &freeaddrinfo);
}

int64_t DescriptorLimit() {
  rlimit limit;
  PCHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  return static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, 1 << 30));
}

// The number of this process's open descriptors; `otherwise` if it is not
// known.
int64_t OpenDescriptors(int64_t otherwise) {
  DIR* const folder = opendir("/proc/self/fd");
  if (folder == nullptr) return otherwise;
  int64_t count = 0;
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

}  // namespace

class Listener::Room {
 public:
  Room() : limit_(DescriptorLimit() / 4 * 3) {}

  bool Take() {
    const absl::Time now = SteadyNow();
    if (unseen_ <= 0 && now >= look_again_) {
      const int64_t open = OpenDescriptors(limit_);
      // Leaves half of the free descriptors to other threads, which open
      // descriptors, too.
      unseen_ = (limit_ - open + 1) / 2;
      if (unseen_ <= 0) look_again_ = now + kPause;
    }
    if (unseen_ > 0) {
      --unseen_;
      return true;
    }
    if (now >= report_) {
      report_ = now + kReportEvery;
      LOG(WARNING) << "refusing connections: at least " << limit_
                   << " descriptors are open, three quarters of this process's "
                      "limit (ulimit -n)";
    }
    return false;
  }

 private:
  const int64_t limit_;
  // The number of connections that may be accepted before the open descriptors
  // are counted again.
  int64_t unseen_ = 0;
  absl::Time look_again_ = absl::InfinitePast();
  absl::Time report_ = absl::InfinitePast();
};

absl::StatusOr<std::unique_ptr<Listener>> Listener::Bind(
    const std::string& address) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto list, Parse(address));
  const addrinfo& info = *list;
  const int fd =
      socket(info.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int on = 1;
  // Options for the connections, which inherit them.
  const unsigned silence = absl::ToInt64Milliseconds(kSilence);
  sockaddr_storage bound = {};
  socklen_t length = sizeof(bound);
  auto* const plain = reinterpret_cast<sockaddr*>(&bound);
  const bool done =
      fd >= 0 &&
      // Without SO_REUSEPORT: otherwise two processes could listen on one port,
      // and each would get some of the calls.
      setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0 &&
      setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silence,
                 sizeof(silence)) == 0 &&
      bind(fd, info.ai_addr, info.ai_addrlen) == 0 &&
      listen(fd, SOMAXCONN) == 0 && getsockname(fd, plain, &length) == 0;
  if (!done) {
    const int error = errno;
    if (fd >= 0) close(fd);
    return absl::UnavailableError(strerror(error));
  }
  const int port = ntohs(info.ai_family == AF_INET6
                             ? reinterpret_cast<sockaddr_in6*>(plain)->sin6_port
                             : reinterpret_cast<sockaddr_in*>(plain)->sin_port);
  return absl::WrapUnique(new Listener(fd, port));
}

Listener::Listener(int socket, int port)
    : socket_(socket), port_(port), quit_(eventfd(0, EFD_CLOEXEC)) {
  PCHECK(quit_ >= 0);
}

Listener::~Listener() {
  const uint64_t one = 1;
  PCHECK(write(quit_, &one, sizeof(one)) == sizeof(one));
  if (thread_.joinable()) thread_.join();
  close(socket_);
  close(quit_);
}

void Listener::Start(std::function<void(int fd)> take) {
  thread_ = std::thread([this, take = std::move(take)] { Accept(take); });
  pthread_setname_np(thread_.native_handle(), "accept");
}

bool Listener::AwaitConnection() {
  pollfd fds[] = {{quit_, POLLIN, 0}, {socket_, POLLIN, 0}};
  while (poll(fds, 2, -1) < 0) {  // EINTR
  }
  return fds[0].revents == 0;
}

bool Listener::Pause() {
  pollfd quit = {quit_, POLLIN, 0};
  return poll(&quit, 1, absl::ToInt64Milliseconds(kPause)) <= 0;
}

void Listener::Accept(const std::function<void(int fd)>& take) {
  Room room;
  while (AwaitConnection()) {
    const int fd =
        accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
      if (room.Take()) {
        take(fd);
      } else {
        close(fd);
      }
      continue;
    }
    switch (errno) {
      case EMFILE:
      case ENFILE:
      case ENOBUFS:
      case ENOMEM:
        PLOG(WARNING) << "cannot accept a connection";
        if (!Pause()) return;
        break;
      default:  // it was closed before it was accepted
        break;
    }
  }
}

}  // namespace holdfast
