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

// What is said on a link's socket, in one packet each
// (docs/protocol/same_host.md, "Making a link").
struct LinkMessage {
  enum class Kind : uint32_t {
    // The client's first: `link`, `secret`; `fd` is its board.
    kHello = 1,
    // The ps' answer.
    kWelcome = 2,
    // Either side's: its file `file` of `size` bytes is `fd`.
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
  // Of the process at the other end when the connection was made.
  absl::StatusOr<uid_t> PeerUid() const;

  // Does not wait: a peer that lets packets pile up gets UNAVAILABLE. `fd` of
  // the message stays the caller's.
  absl::Status Send(const LinkMessage& message);
  // What has come; nullopt: nothing yet.
  // Errors: UNAVAILABLE when the other end is closed; INVALID_ARGUMENT for what
  // is no such message.
  absl::StatusOr<std::optional<LinkMessage>> TryReceive();
  // Waits for it. Errors: DEADLINE_EXCEEDED, too.
  absl::StatusOr<LinkMessage> Receive(absl::Duration timeout);

 private:
  UniqueFd fd_;
};

// A socket that clients connect to.
//
// Thread-compatible.
class LinkListener {
 public:
  // Whose the directory of the path is.
  enum class Directory {
    // This user's alone: made, with mode 0700, where it is not there.
    kOwn,
    // As its owner has made it: whoever may search it can connect, so that
    // containers of several users can share it. The socket's mode is 0666.
    kGiven,
  };
  // Listens at a path of its own in `directory`. Of this user's sockets there
  // those that nobody has listened at for a minute are removed: their processes
  // have died.
  // Errors: FAILED_PRECONDITION when a kOwn directory is another user's or open
  // to others; NOT_FOUND when a kGiven one is not there; INVALID_ARGUMENT when
  // it has no name; UNAVAILABLE with the system call.
  static absl::StatusOr<std::unique_ptr<LinkListener>> Listen(
      const std::string& directory, Directory kind = Directory::kOwn);
  // Removes the path.
  ~LinkListener();

  int fd() const { return fd_.get(); }
  const std::string& path() const { return path_; }
  // Null: nobody is waiting.
  absl::StatusOr<std::unique_ptr<LinkSocket>> TryAccept();

 private:
  LinkListener() = default;

  UniqueFd fd_;
  std::string path_;
};

// Of the kernel that runs: /proc/sys/kernel/random/boot_id. Empty where it
// cannot be read.
std::string BootId();

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_SHARED_MEMORY_LINK_SOCKET_H_
