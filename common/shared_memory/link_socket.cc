// SPDX-License-Identifier: Apache-2.0
#include "common/shared_memory/link_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/base/clock.h"
#include "common/base/nonce.h"
#include "common/base/status_macros.h"

namespace holdfast {
namespace {

// A message on the wire, in the byte order of the host on which both ends run:
// docs/protocol/same_host.md, "Bytes". There is no padding between members.
struct Packet {
  char magic[4];
  uint32_t kind;
  uint64_t link;
  uint64_t size;
  uint32_t file;
  uint32_t zero;
  char secret[LinkMessage::kSecretBytes];
};
static_assert(sizeof(Packet) == 48);
static_assert(std::is_trivially_copyable_v<Packet>);

// The prefix and suffix of a socket's name.
constexpr absl::string_view kPrefix = "holdfast-";
constexpr absl::string_view kSuffix = ".sock";

// The last character is the version of the layout.
constexpr char kMagic[4] = {'H', 'F', 'L', '1'};

absl::Status SystemError(absl::string_view what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", strerror(errno)));
}

bool CarriesFile(LinkMessage::Kind kind) {
  return kind == LinkMessage::Kind::kHello || kind == LinkMessage::Kind::kFile;
}

absl::Status CheckWellFormed(const LinkMessage& message) {
  switch (message.kind) {
    case LinkMessage::Kind::kHello:
    case LinkMessage::Kind::kWelcome:
    case LinkMessage::Kind::kFile:
      break;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("message of a link: unknown kind ",
                       static_cast<uint32_t>(message.kind)));
  }
  if (message.fd.valid() != CarriesFile(message.kind)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "message of a link: kind ", static_cast<uint32_t>(message.kind),
        message.fd.valid() ? " with" : " without", " a descriptor"));
  }
  if (message.kind == LinkMessage::Kind::kHello &&
      message.secret.size() != LinkMessage::kSecretBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "message of a link: a secret of ", message.secret.size(), " bytes"));
  }
  return absl::OkStatus();
}

// A socket's address for system calls. A path that is too long for them is
// given relative to its folder, which is kept open.
//
// Thread-compatible.
class SocketAddress {
 public:
  // Returns whether the path is usable; sets errno otherwise.
  bool Set(const std::string& path) {
    std::string shorter = path;
    if (path.size() >= sizeof(address_.sun_path)) {
      const size_t slash = path.rfind('/');
      if (slash == path.npos) return Fail(ENAMETOOLONG);
      folder_ = UniqueFd(open(path.substr(0, slash).c_str(),
                              O_PATH | O_DIRECTORY | O_CLOEXEC));
      if (!folder_.valid()) return false;
      shorter =
          absl::StrCat("/proc/self/fd/", folder_.get(), path.substr(slash));
    }
    if (shorter.empty() || shorter.find('\0') != shorter.npos) {
      return Fail(EINVAL);
    }
    if (shorter.size() >= sizeof(address_.sun_path)) return Fail(ENAMETOOLONG);
    address_.sun_family = AF_UNIX;
    std::memcpy(address_.sun_path, shorter.data(), shorter.size());
    return true;
  }

  const sockaddr* get() const {
    return reinterpret_cast<const sockaddr*>(&address_);
  }
  static constexpr socklen_t size() { return sizeof(sockaddr_un); }

 private:
  static bool Fail(int error) {
    errno = error;
    return false;
  }

  sockaddr_un address_ = {};
  UniqueFd folder_;
};

UniqueFd MakeSocket() {
  return UniqueFd(
      socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// Returns whether it could connect; sets errno otherwise.
bool ConnectTo(int fd, const SocketAddress& address) {
  return connect(fd, address.get(), address.size()) == 0;
}

// Checks that the folder belongs to this user, and that others have no access
// to it.
absl::Status CheckIsOursAlone(const std::string& folder) {
  const auto refused = [&folder](auto... why) {
    return absl::FailedPreconditionError(
        absl::StrCat("sockets cannot be in ", folder, ": ", why...));
  };
  struct stat stat;
  // lstat, because the target of a symbolic link may change.
  if (lstat(folder.c_str(), &stat) != 0) {
    return SystemError(absl::StrCat("stat ", folder));
  }
  if (!S_ISDIR(stat.st_mode)) return refused("it is not a directory");
  if (stat.st_uid != geteuid()) {
    return refused("it belongs to user ", stat.st_uid, ", this is user ",
                   geteuid());
  }
  if ((stat.st_mode & 077) != 0) {
    return refused("others have access to it (mode ",
                   absl::StrFormat("%o", stat.st_mode & 0777),
                   "); its mode must be 700");
  }
  return absl::OkStatus();
}

// A socket on which no process listens after this time never will be listened
// on: a new socket is listened on at once.
constexpr absl::Duration kDeadAfter = absl::Minutes(1);

// Sockets that cannot be removed stay: they do no harm.
void RemoveDeadSockets(const std::string& folder) {
  std::error_code code;
  for (const auto& entry : std::filesystem::directory_iterator(folder, code)) {
    const std::string path = entry.path();
    const std::string name = entry.path().filename();
    struct stat stat;
    if (!absl::StartsWith(name, kPrefix) || !absl::EndsWith(name, kSuffix) ||
        lstat(path.c_str(), &stat) != 0 || !S_ISSOCK(stat.st_mode) ||
        stat.st_uid != geteuid() ||
        DateNow() - absl::TimeFromTimespec(stat.st_mtim) < kDeadAfter) {
      continue;
    }
    SocketAddress address;
    const UniqueFd fd = MakeSocket();
    if (!fd.valid() || !address.Set(path)) return;
    if (!ConnectTo(fd.get(), address) && errno == ECONNREFUSED) {
      unlink(path.c_str());
    }
  }
}

}  // namespace

// ---- LinkSocket ----

absl::StatusOr<std::unique_ptr<LinkSocket>> LinkSocket::Connect(
    const std::string& path) {
  const auto error = [&path](absl::string_view why) {
    return absl::UnavailableError(absl::StrCat("socket ", path, ": ", why));
  };
  SocketAddress address;
  if (!address.Set(path)) return error(strerror(errno));
  UniqueFd fd = MakeSocket();
  if (!fd.valid()) return error(strerror(errno));
  if (!ConnectTo(fd.get(), address)) return error(strerror(errno));
  return std::make_unique<LinkSocket>(std::move(fd));
}

absl::StatusOr<uid_t> LinkSocket::PeerUid() const {
  ucred peer;
  socklen_t size = sizeof(peer);
  if (getsockopt(fd_.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return SystemError("getsockopt(SO_PEERCRED)");
  }
  return peer.uid;
}

absl::Status LinkSocket::Send(const LinkMessage& message) {
  HOLDFAST_RETURN_IF_ERROR(CheckWellFormed(message));
  Packet packet = {};
  std::memcpy(packet.magic, kMagic, sizeof(kMagic));
  packet.kind = static_cast<uint32_t>(message.kind);
  packet.link = message.link;
  packet.size = message.size;
  packet.file = message.file;
  if (message.kind == LinkMessage::Kind::kHello) {
    std::memcpy(packet.secret, message.secret.data(), sizeof(packet.secret));
  }
  iovec bytes = {&packet, sizeof(packet)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header = {};
  header.msg_iov = &bytes;
  header.msg_iovlen = 1;
  if (message.fd.valid()) {
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    const int fd = message.fd.get();
    std::memcpy(CMSG_DATA(rights), &fd, sizeof(fd));
  }
  ssize_t sent;
  do {
    sent = sendmsg(fd_.get(), &header, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
    return absl::UnavailableError("the link's other end is not reading");
  }
  // A packet is sent completely, or not at all.
  return sent < 0 ? SystemError("sending on a link") : absl::OkStatus();
}

absl::StatusOr<std::optional<LinkMessage>> LinkSocket::TryReceive() {
  Packet packet;
  iovec bytes = {&packet, sizeof(packet)};
  // There is room for one descriptor. The kernel drops further ones, or puts
  // them into the padding; then this process owns them, and they are closed
  // below.
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  msghdr header = {};
  header.msg_iov = &bytes;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof(control);
  ssize_t size;
  do {
    size = recvmsg(fd_.get(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (size < 0 && errno == EINTR);
  if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
    return std::nullopt;
  }
  if (size < 0) return SystemError("receiving on a link");

  std::vector<UniqueFd> fds;
  bool foreign = (header.msg_flags & (MSG_CTRUNC | MSG_TRUNC)) != 0;
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr;
       part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) {
      foreign = true;
      continue;
    }
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(fd), sizeof(fd));
      fds.emplace_back(fd);
    }
  }
  // An empty packet looks like the end of the connection, and is treated as
  // such.
  if (size == 0) {
    return absl::UnavailableError("the link's other end is closed");
  }
  if (foreign || fds.size() > 1 || size != sizeof(packet) ||
      std::memcmp(packet.magic, kMagic, sizeof(kMagic)) != 0 ||
      packet.zero != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("message of a link: ", size, " bytes and ", fds.size(),
                     " descriptors in an unknown layout"));
  }
  LinkMessage message;
  message.kind = static_cast<LinkMessage::Kind>(packet.kind);
  message.link = packet.link;
  message.size = packet.size;
  message.file = packet.file;
  if (message.kind == LinkMessage::Kind::kHello) {
    message.secret.assign(packet.secret, sizeof(packet.secret));
  }
  if (!fds.empty()) message.fd = std::move(fds[0]);
  HOLDFAST_RETURN_IF_ERROR(CheckWellFormed(message));
  return message;
}

absl::StatusOr<LinkMessage> LinkSocket::Receive(absl::Duration timeout) {
  const absl::Time deadline = SteadyNow() + timeout;
  while (true) {
    HOLDFAST_ASSIGN_OR_RETURN(auto received, TryReceive());
    if (received.has_value()) return *std::move(received);
    const absl::Duration left = deadline - SteadyNow();
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError(
          "the link's other end has sent nothing in time");
    }
    pollfd waited = {fd_.get(), POLLIN, 0};
    // Rounded up, or the loop would spin through the last millisecond.
    const int64_t wait_ms =
        absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1)));
    if (poll(&waited, 1,
             static_cast<int>(std::min<int64_t>(wait_ms, INT_MAX))) < 0 &&
        errno != EINTR) {
      return SystemError("poll");
    }
  }
}

// ---- LinkListener ----

absl::StatusOr<std::unique_ptr<LinkListener>> LinkListener::Listen(
    const std::string& directory, Directory kind) {
  std::error_code code;
  // Absolute, because a client has another working directory.
  const std::string absolute = std::filesystem::absolute(directory, code);
  if (directory.empty() || code) {
    return absl::InvalidArgumentError(
        absl::StrCat("the path of the directory for sockets, \"", directory,
                     "\", is empty or cannot be resolved"));
  }
  const std::string folder(absl::StripSuffix(absolute, "/"));
  const auto error = [&folder](absl::string_view call) {
    return absl::UnavailableError(
        absl::StrCat("socket in ", folder, ": ", call, ": ", strerror(errno)));
  };
  // A unique path, so that sockets left by other processes do no harm.
  const std::string path =
      absl::StrCat(folder, "/", kPrefix, getpid(), "-",
                   absl::Hex(MakeNonce(), absl::kZeroPad16), kSuffix);
  if (kind == Directory::kOwn) {
    if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
      return error("mkdir");
    }
    HOLDFAST_RETURN_IF_ERROR(CheckIsOursAlone(folder));
  }

  SocketAddress address;
  if (!address.Set(path)) {
    if (kind == Directory::kGiven && (errno == ENOENT || errno == ENOTDIR)) {
      return absl::NotFoundError(absl::StrCat("no directory ", folder));
    }
    return error("open");
  }
  RemoveDeadSockets(folder);
  auto listener = std::unique_ptr<LinkListener>(new LinkListener);
  listener->fd_ = MakeSocket();
  if (!listener->fd_.valid()) return error("socket");
  if (bind(listener->fd(), address.get(), address.size()) != 0) {
    if (kind == Directory::kGiven && (errno == ENOENT || errno == ENOTDIR)) {
      return absl::NotFoundError(absl::StrCat("no directory ", folder));
    }
    return error("bind");
  }
  listener->path_ = path;
  // AT_SYMLINK_NOFOLLOW, because others may write to the folder and replace the
  // socket.
  if (kind == Directory::kGiven &&
      fchmodat(AT_FDCWD, path.c_str(), 0666, AT_SYMLINK_NOFOLLOW) != 0) {
    return error("fchmodat");
  }
  if (listen(listener->fd(), SOMAXCONN) != 0) return error("listen");
  return listener;
}

LinkListener::~LinkListener() {
  if (!path_.empty()) unlink(path_.c_str());
}

absl::StatusOr<std::unique_ptr<LinkSocket>> LinkListener::TryAccept() {
  while (true) {
    UniqueFd fd(
        accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd.valid()) return std::make_unique<LinkSocket>(std::move(fd));
    if (errno == EAGAIN || errno == EWOULDBLOCK) return nullptr;
    // The client has already disconnected.
    if (errno == EINTR || errno == ECONNABORTED) continue;
    return SystemError(absl::StrCat("accepting at ", path_));
  }
}

std::string BootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

}  // namespace holdfast
