// SPDX-License-Identifier: Apache-2.0
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
// what it lends to the ps, and what it reads of the ps's memory.
//
// Buffers returned by Read keep the link, and with it its socket, alive until
// they are destroyed: the ps keeps what they refer to at least that long.
//
// Thread-safe.
class Link : public std::enable_shared_from_this<Link> {
 public:
  // [H3] Connects to the address that the ps has offered, and identifies
  // itself; does not wait. `regions`, from which gradients are lent, must
  // outlive the last call of Lend. If `host_memory` is not null, the memory
  // that Read returns is pinned; `host_memory` must outlive the link and
  // everything that was read. Errors: why there is no link.
  static absl::StatusOr<std::shared_ptr<Link>> Greet(
      const proto::LinkResponse& offer, const SharedArena* regions,
      HostMemory* host_memory = nullptr);
  // [H4] Waits for the ps's welcome for at most `timeout`. Must be called until
  // the welcome has arrived, before all other methods, and by one thread at a
  // time.
  // Errors: DEADLINE_EXCEEDED if the welcome may still come; any other error
  // means that it will not.
  absl::Status AwaitWelcome(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mutex_);

  // Whether anything may still be lent or read: the ps is alive, and has kept
  // to the protocol.
  bool usable() ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether the ps holds anything that was lent.
  bool holds() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Makes a loan under which the ps can lend one range of values to a new call
  // that reads it. Returns nullopt if no loan can be made, so that the ps has
  // to send the values.
  std::optional<proto::Loan> OfferRead();
  // Returns values that an answer says are in the ps's memory. The loan of the
  // values is returned when the last reference to them is gone. For each loan
  // that OfferRead has made, either Read or Return must be called once.
  // Errors: INTERNAL if the values are not in memory that the ps has announced;
  // the loan is then unchanged.
  absl::StatusOr<Buffer> Read(const proto::SharedBytes& values);
  // Returns a loan whose values did not arrive, or were sent in the message.
  void Return(const proto::Loan& loan);

  // Lends a gradient to the ps for a new call. Returns the location of the
  // gradient's bytes, whose owners are kept from now on. Returns nullopt if the
  // bytes have to be sent, because they are not contiguous in the regions, or
  // are too few, or no loan can be made.
  std::optional<proto::SharedBytes> Lend(const Buffer& gradient)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends a loan made by Lend after its call has ended, successfully or not. If
  // the ps holds the gradient, the owners of its bytes are kept until the ps
  // has returned it or has died.
  void TakeBack(const proto::Loan& loan) ABSL_LOCKS_EXCLUDED(mutex_);
  // Releases the gradients that the ps has returned.
  void Sweep() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // A gradient that is lent.
  struct Lent {
    uint64_t serial;
    Buffer gradient;
    // Whether the call has ended while the ps held the gradient.
    bool held = false;
  };
  struct Borrowed;

  Link(uint64_t number, std::unique_ptr<LinkSocket> socket,
       std::unique_ptr<LoanMaker> board, const SharedArena* regions,
       HostMemory* host_memory);

  absl::Status SendHello(const std::string& secret);
  proto::Loan LoanOf(LoanId loan) const;
  // Handles the messages that have arrived on the socket.
  void Look() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status TakeFile(const LinkMessage& message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Announces the regions' files up to number `through` to the ps.
  bool SendFiles(uint32_t through) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const uint64_t number_;
  const std::unique_ptr<LinkSocket> socket_;
  const std::unique_ptr<LoanMaker> board_;
  const SharedArena& regions_;
  HostMemory* const host_memory_;

  mutable absl::Mutex mutex_;
  // Whether the ps has closed its end of the socket: it has died, or holds
  // nothing.
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  // Whether the ps has violated the protocol.
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;
  // The files that the ps has announced, in the order of their numbers, which
  // begin with 1.
  std::vector<std::shared_ptr<LentFile>> files_ ABSL_GUARDED_BY(mutex_);
  // The number of the regions' files that were announced to the ps.
  uint32_t files_sent_ ABSL_GUARDED_BY(mutex_) = 0;
  // The gradients that are lent, by the slot of their loan.
  std::map<uint32_t, Lent> lent_ ABSL_GUARDED_BY(mutex_);
  size_t num_held_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_LINK_H_
