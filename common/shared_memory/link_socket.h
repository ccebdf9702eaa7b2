// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_SHARED_MEMORY_LINK_SOCKET_H_
#define HOLDFAST_COMMON_SHARED_MEMORY_LINK_SOCKET_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/shared_memory/sealed_file.h"

namespace holdfast {

// A message on a link's socket, sent as one packet (docs/protocol/same_host.md,
// "Making a link").
struct LinkMessage {
  enum class Kind : uint32_t {
    // The client's first message: `link` and `secret`; `fd` is its board.
    kHello = 1,
    // The ps's answer.
    kWelcome = 2,
    // From either side: `fd` is the sender's file number `file`, of `size`
    // bytes.
    kFile = 3,
  };
  static constexpr size_t kSecretBytes = 16;

  Kind kind = Kind::kHello;
  uint64_t link = 0;
  std::string secret;  // kHello: of kSecretBytes
  uint32_t file = 0;
  uint64_t size = 0;
  UniqueFd fd;
};

// One end of a link: a Unix socket of packets.
//
// Thread-compatible, but Send and TryReceive may be called at the same time.
class LinkSocket {
 public:
  // Errors: UNAVAILABLE, with path and cause.
  static absl::StatusOr<std::unique_ptr<LinkSocket>> Connect(
      const std::string& path);
  explicit LinkSocket(UniqueFd fd) : fd_(std::move(fd)) {}

  int fd() const { return fd_.get(); }
  // The user id of the process at the other end when the connection was made.
  absl::StatusOr<uid_t> PeerUid() const;

  // Sends `message`, whose `fd` stays the caller's. Does not wait: returns
  // UNAVAILABLE if the peer has not received so many packets that no more fit.
  absl::Status Send(const LinkMessage& message);
  // Returns the next message that has arrived, or nullopt if none has.
  // Errors: UNAVAILABLE when the other end is closed; INVALID_ARGUMENT for a
  // packet that is not a valid message.
  absl::StatusOr<std::optional<LinkMessage>> TryReceive();
  // Waits for the next message.
  // Errors: as TryReceive, and DEADLINE_EXCEEDED.
  absl::StatusOr<LinkMessage> Receive(absl::Duration timeout);

 private:
  UniqueFd fd_;
};

// A socket to which clients connect.
//
// Thread-compatible.
class LinkListener {
 public:
  // The owner of the socket's directory.
  enum class Directory {
    // This user, and no other user may access the directory. It is made, with
    // mode 0700, if it does not exist.
    kOwn,
    // Any user. The directory is used with the permissions that it has:
    // everyone who may search it can connect, so that containers of several
    // users can share it. The socket's mode is 0666.
    kGiven,
  };
  // Listens at a new path in `directory`. Removes this user's sockets in it
  // that are older than a minute and on which no process listens any more.
  // Errors: FAILED_PRECONDITION when a kOwn directory belongs to another user
  // or is accessible to others; NOT_FOUND when a kGiven one does not exist;
  // INVALID_ARGUMENT when the directory's name is empty; UNAVAILABLE, with the
  // name of the system call, when the system fails.
  static absl::StatusOr<std::unique_ptr<LinkListener>> Listen(
      const std::string& directory, Directory kind = Directory::kOwn);
  // Removes the socket from its directory.
  ~LinkListener();

  int fd() const { return fd_.get(); }
  const std::string& path() const { return path_; }
  // Accepts a connection. Returns null if no client is waiting.
  absl::StatusOr<std::unique_ptr<LinkSocket>> TryAccept();

 private:
  LinkListener() = default;

  UniqueFd fd_;
  std::string path_;
};

// The running kernel's boot id, /proc/sys/kernel/random/boot_id; empty if it
// cannot be read.
std::string BootId();

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_SHARED_MEMORY_LINK_SOCKET_H_
