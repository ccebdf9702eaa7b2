#ifndef HOLDFAST_CLIENT_LINK_H_
#define HOLDFAST_CLIENT_LINK_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/lent_file.h"
#include "common/process/host_memory.h"
#include "common/shared_memory/arena.h"
#include "common/shared_memory/board.h"
#include "common/shared_memory/link_socket.h"
#include "common/tensor/buffer.h"
#include "proto/cluster.pb.h"
#include "proto/shard.pb.h"

namespace holdfast::client {

// The client's end of a link to a ps of this host (docs/protocol/same_host.md):
// what it lends to the ps, and what it reads of the ps' memory.
//
// Buffers that Read has made keep the link, and so its socket, until they go:
// the ps keeps what they refer to at least as long.
//
// Thread-safe.
class Link : public std::enable_shared_from_this<Link> {
 public:
  // [H3] Connects to what the ps has offered, and says whose link it is; does
  // not wait. `regions`, of which gradients are lent, must outlive the last
  // call of Lend. With `host_memory`, which must outlive the link and all that
  // was read, what Read returns is pinned. Errors: why there is no link.
  static absl::StatusOr<std::shared_ptr<Link>> Greet(
      const proto::LinkResponse& offer, const SharedArena* regions,
      HostMemory* host_memory = nullptr);
  // [H4] Waits for the ps' welcome for at most `timeout`; to be called until it
  // is here, and before all others, at one time by one thread.
  // Errors: DEADLINE_EXCEEDED: it may still come; others: it will not.
  absl::Status AwaitWelcome(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mutex_);

  // Whether anything may be lent or read any more: the ps lives, and has kept
  // to the rules.
  bool usable() ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether the ps holds something that was lent.
  bool holds() const ABSL_LOCKS_EXCLUDED(mutex_);

  // For a range of a call that begins. Nullopt: the values have to be sent.
  std::optional<proto::Loan> OfferRead();
  // The values of an answer; their loan is returned with the last reference to
  // them. To be called once for a loan, or Return is.
  // Errors: INTERNAL when they lie nowhere that the ps has told of; the loan is
  // as it was.
  absl::StatusOr<Buffer> Read(const proto::SharedBytes& values);
  // The values did not come, or came otherwise.
  void Return(const proto::Loan& loan);

  // For a call that begins: where the bytes of a gradient lie, whose owners are
  // kept from now on. Nullopt: they have to be sent, for they do not lie in the
  // regions in one piece, or are few, or no loan can be made.
  std::optional<proto::SharedBytes> Lend(const Buffer& gradient)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // The call has ended, however it did. Where the ps holds the gradient, its
  // owners are kept until it has given it back, or has died.
  void TakeBack(const proto::Loan& loan) ABSL_LOCKS_EXCLUDED(mutex_);
  // Lets go of what the ps has given back.
  void Sweep() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // Of a gradient.
  struct Lent {
    uint64_t serial;
    Buffer gradient;
    // The call has ended, and the ps held it.
    bool held = false;
  };
  struct Borrowed;

  Link(uint64_t number, std::unique_ptr<LinkSocket> socket,
       std::unique_ptr<LoanMaker> board, const SharedArena* regions,
       HostMemory* host_memory);

  absl::Status SendHello(const std::string& secret);
  proto::Loan LoanOf(LoanId loan) const;
  // Reads what has come over the socket.
  void Look() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status TakeFile(const LinkMessage& message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The ps gets to know the regions' files up to this.
  bool SendFiles(uint32_t through) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const uint64_t number_;
  const std::unique_ptr<LinkSocket> socket_;
  const std::unique_ptr<LoanMaker> board_;
  const SharedArena& regions_;
  HostMemory* const host_memory_;

  mutable absl::Mutex mutex_;
  // The ps has closed its end: it is dead, or holds nothing.
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  // It has sent what it must not.
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;
  // Of the ps, from number 1.
  std::vector<std::shared_ptr<LentFile>> files_ ABSL_GUARDED_BY(mutex_);
  // How many of the regions' files the ps knows.
  uint32_t files_sent_ ABSL_GUARDED_BY(mutex_) = 0;
  // By slot.
  std::map<uint32_t, Lent> lent_ ABSL_GUARDED_BY(mutex_);
  size_t num_held_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_LINK_H_
