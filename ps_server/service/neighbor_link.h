// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_SERVICE_NEIGHBOR_LINK_H_
#define HOLDFAST_PS_SERVER_SERVICE_NEIGHBOR_LINK_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/job/task_id.h"
#include "common/shared_memory/arena.h"
#include "common/shared_memory/board.h"
#include "common/shared_memory/link_socket.h"
#include "common/shared_memory/sealed_file.h"
#include "common/tensor/buffer.h"
#include "proto/cluster.pb.h"

namespace holdfast {

// Figures of all links of a ps, as in NeighborFigures; any thread may count.
struct NeighborCounters {
  std::atomic<uint64_t> lent_now{0};
  std::atomic<uint64_t> borrowed_now{0};
  std::atomic<uint64_t> lent{0};
  std::atomic<uint64_t> borrowed{0};
  // The number of mapped files of peers.
  std::atomic<size_t> files{0};
};

// Identifies a version of the values by its generation and its number.
struct LentVersion {
  uint64_t generation = 0;
  uint64_t number = 0;

  friend bool operator<(const LentVersion& a, const LentVersion& b) {
    return std::tie(a.generation, a.number) < std::tie(b.generation, b.number);
  }
};

// The versions of which values are lent, over any link. Each of these versions
// takes memory, which the shard's memory plan bounds.
//
// Thread-safe.
class LentVersions {
 public:
  // Sets the maximum number of versions. By default it is unlimited.
  void set_most(size_t versions) ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether Add would return true.
  bool HasRoomFor(const LentVersion& version) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Counts a loan of `version`. Returns false, without counting it, if the
  // maximum number of other versions is lent already.
  bool Add(const LentVersion& version) ABSL_LOCKS_EXCLUDED(mutex_);
  // Counts that a loan of `version` has been given back.
  void Remove(const LentVersion& version) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  mutable absl::Mutex mutex_;
  size_t most_ ABSL_GUARDED_BY(mutex_) = std::numeric_limits<size_t>::max();
  // The number of loans of each version.
  std::map<LentVersion, size_t> loans_ ABSL_GUARDED_BY(mutex_);
};

// A ps's end of a link: receives the peer's files over the link's socket, lends
// values over the link, and finds the gradients that the peer lends
// (docs/protocol/same_host.md).
//
// Whatever the peer does to its files, its board and the socket affects only
// what the peer itself gets.
//
// Thread-safe. Borrowed buffers may outlive the link.
class NeighborLink {
 public:
  // The maximum number of files of one peer and of all peers together, and the
  // maximum number of bytes of one peer's files. The link of a peer that sends
  // more is closed. kMaxFilesOfAll exists because a process may have 65530
  // mappings by default.
  static constexpr size_t kMaxFiles = 1024;
  static constexpr size_t kMaxFilesOfAll = 16384;
  static constexpr uint64_t kMaxMappedBytes = uint64_t{1} << 40;

  // `arena` must outlive the link.
  NeighborLink(uint64_t number, TaskId peer, std::unique_ptr<LinkSocket> socket,
               std::unique_ptr<LoanTaker> board, const SharedArena* arena,
               std::shared_ptr<NeighborCounters> counters,
               std::shared_ptr<LentVersions> versions);
  // Ends the link, as End does.
  ~NeighborLink();

  NeighborLink(const NeighborLink&) = delete;
  NeighborLink& operator=(const NeighborLink&) = delete;

  uint64_t number() const { return number_; }
  // The task that asked for the link, whose process holds the socket. The
  // process may register again while it has the link, so the link does not
  // belong to an incarnation.
  const TaskId& peer() const { return peer_; }
  // The socket's descriptor, for polling only.
  int fd() const { return socket_->fd(); }

  // [H4] Sends the kWelcome message. Errors: UNAVAILABLE when the peer does not
  // receive it.
  absl::Status Welcome() ABSL_LOCKS_EXCLUDED(mutex_);
  // Processes the messages that have come over the socket. Errors say why the
  // link has ended, or must end: UNAVAILABLE when the peer has closed the
  // socket, INVALID_ARGUMENT for a message that breaks its rules,
  // RESOURCE_EXHAUSTED when the peer sends too much.
  absl::Status Receive() ABSL_LOCKS_EXCLUDED(mutex_);

  // Lends `data`, which is part of `version`, and keeps it until the peer has
  // returned the loan or the link has ended. Returns nullopt if the data must
  // be sent instead: because it is not in one piece of the arena, the loan is
  // not offered, the peer does not receive the file, more than `max_lent_bytes`
  // of versions would be lent to the peer, or too many versions would be lent
  // (LentVersions).
  std::optional<proto::SharedBytes> Lend(LoanId loan, const Buffer& data,
                                         const LentVersion& version,
                                         uint64_t max_lent_bytes)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // The same for a copy of rows, whose owner limits how much of it there is
  // (RowMemory).
  std::optional<proto::SharedBytes> LendRows(LoanId loan, const Buffer& data)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Releases the data of loans that the peer has returned.
  void TakeBack() ABSL_LOCKS_EXCLUDED(mutex_);

  // Borrows the peer's bytes at `place`, a range of one of its files. They may
  // be read, on any thread, until the last reference to them is gone, but the
  // peer may change them at any time.
  // Errors: INVALID_ARGUMENT when the peer has no such file or range;
  // UNAVAILABLE when the loan is not offered, or the link has ended.
  absl::StatusOr<Buffer> Borrow(const proto::SharedBytes& place)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends the link: takes back all loans of values, and makes no more. If it is
  // called again, the first `why` is kept.
  void End(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_);
  // Why the link has ended, and how much was lent and borrowed, for people.
  std::string Summary() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Lent {
    LoanId loan;
    Buffer data;
    // Not set for rows.
    std::optional<LentVersion> version;
  };

  // Lend and LendRows, without the limits of the former.
  std::optional<proto::SharedBytes> LendLocked(
      LoanId loan, const Buffer& data, std::optional<LentVersion> version)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Status ReceiveLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Take(const LinkMessage& message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Sends the peer the files of the arena that it has not been sent.
  absl::Status SendFiles() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const uint64_t number_;
  const TaskId peer_;
  const std::unique_ptr<LinkSocket> socket_;
  const std::shared_ptr<LoanTaker> board_;
  const SharedArena* const arena_;
  const std::shared_ptr<NeighborCounters> counters_;
  const std::shared_ptr<LentVersions> versions_;

  mutable absl::Mutex mutex_;
  // Not OK once the link has ended.
  absl::Status why_ended_ ABSL_GUARDED_BY(mutex_);
  // The peer's files, by number.
  std::map<uint32_t, std::shared_ptr<const PeerFile>> files_
      ABSL_GUARDED_BY(mutex_);
  uint64_t mapped_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  // How many of the arena's files the peer has been sent.
  size_t files_sent_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Lent> lent_ ABSL_GUARDED_BY(mutex_);
  // The number of bytes of the data in lent_, and of those of versions.
  uint64_t lent_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t lent_version_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t lent_ever_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t borrowed_ever_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SERVICE_NEIGHBOR_LINK_H_
