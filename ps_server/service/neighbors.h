// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_SERVICE_NEIGHBORS_H_
#define HOLDFAST_PS_SERVER_SERVICE_NEIGHBORS_H_

#include <google/protobuf/repeated_field.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/shared_memory/arena.h"
#include "common/shared_memory/link_socket.h"
#include "common/tensor/tensor_piece.h"
#include "proto/cluster.pb.h"
#include "proto/shard.pb.h"
#include "ps_server/service/neighbor_figures.h"
#include "ps_server/service/neighbor_link.h"

namespace holdfast {

// All links of a ps with processes of the same host
// (docs/protocol/same_host.md): makes links, lends values over them, and finds
// the gradients that messages name.
//
// One thread accepts connections and receives their messages; it sleeps
// otherwise. A connection that has not identified itself yet is a *stranger*.
// There are at most kMaxStrangers strangers: if one more comes, the oldest is
// closed.
//
// Thread-safe.
class Neighbors {
 public:
  // [H2] How long a secret is valid; and the maximum numbers of secrets, of
  // secrets of one sender, of links and of strangers.
  static constexpr absl::Duration kSecretLife = absl::Seconds(10);
  static constexpr size_t kMaxSecrets = 1024;
  static constexpr size_t kMaxSecretsOfOne = 4;
  static constexpr size_t kMaxLinks = 1024;
  static constexpr size_t kMaxStrangers = 64;
  // The maximum number of bytes in one message that Borrow copies, because
  // their encoding is not EXACT.
  static constexpr uint64_t kMaxCopiedBytes = uint64_t{16} << 20;

  struct Options {
    // The ps's name, for the log.
    std::string name;
    // The memory in which the ps has its values.
    std::shared_ptr<SharedArena> arena;
    // The directory in which the socket is made.
    std::string directory;
    LinkListener::Directory kind = LinkListener::Directory::kOwn;
    // Whether every caller that requests a link has presented a certificate. If
    // not, the process that connects must belong to this user.
    bool secure = false;
    // Must outlive this object.
    const Clock* clock = nullptr;
    // The kernel's BootId(); a test may set another.
    std::string boot_id;
  };

  // Starts to accept connections. Must be called before memory is taken from
  // the arena. Errors: those of LinkListener::Listen; UNAVAILABLE when there is
  // no descriptor left.
  static absl::StatusOr<std::unique_ptr<Neighbors>> Start(Options options);
  // Closes all links.
  ~Neighbors();

  Neighbors(const Neighbors&) = delete;
  Neighbors& operator=(const Neighbors&) = delete;

  // [H1, H2] Answers a request for a link whose sender has been checked. Does
  // not set the generation.
  proto::LinkResponse Link(const proto::LinkRequest& request)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Lends values to `sender`. `pieces` are parts of `version`, or copies of
  // rows, one for each of `ranges`. If possible, each piece for whose range the
  // sender offers a loan gets a location in shared memory instead of its data.
  void Lend(const proto::Sender& sender, const LentVersion& version,
            const google::protobuf::RepeatedPtrField<proto::ReadRange>& ranges,
            std::vector<TensorPiece>* pieces);
  // Replaces the location in shared memory that a piece names by the data that
  // is there. EXACT elements are not copied, and may change while they are
  // read; elements in other encodings are copied.
  // Errors: INVALID_ARGUMENT, naming the variable, for a location that is not
  // in the sender's memory; UNAVAILABLE when the sender's link has ended, or
  // the loan is no longer offered.
  absl::Status Borrow(const proto::Sender& sender,
                      std::vector<TensorPiece>* pieces);

  // Limits how many bytes are lent over one link, and how many versions are
  // lent over all links; values beyond these limits are sent. By default there
  // is no limit.
  void set_max_lent(uint64_t bytes_of_link, size_t versions) {
    max_lent_bytes_ = bytes_of_link;
    versions_->set_most(versions);
  }

  NeighborFigures figures() const;

 private:
  // The open links, by number. The arena calls TakeBack when it needs memory,
  // for as long as this object exists.
  struct Links {
    std::shared_ptr<NeighborLink> Find(uint64_t number) const
        ABSL_LOCKS_EXCLUDED(mutex);
    void TakeBack() const ABSL_LOCKS_EXCLUDED(mutex);

    mutable absl::Mutex mutex;
    std::map<uint64_t, std::shared_ptr<NeighborLink>> by_number
        ABSL_GUARDED_BY(mutex);
  };
  // A link that was requested and is not made yet.
  struct Pending {
    uint64_t number = 0;
    TaskId peer;
    std::string secret;
    absl::Time deadline;
  };

  explicit Neighbors(Options options);

  proto::LinkResponse Refuse(const std::string& why);
  void Run();
  // Accepts connections. Returns false if there is no descriptor left for one.
  bool Accept(std::list<std::unique_ptr<LinkSocket>>* strangers);
  // [H4] Receives a stranger's greeting, and returns the link that it has a
  // right to; null if it has sent nothing yet. Errors: why it has no right to a
  // link.
  absl::StatusOr<std::shared_ptr<NeighborLink>> Greet(
      std::unique_ptr<LinkSocket>* stranger) ABSL_LOCKS_EXCLUDED(mutex_);
  // Takes the pending link that `hello` names, and returns its peer. Errors:
  // PERMISSION_DENIED.
  absl::StatusOr<TaskId> TakePending(const LinkMessage& hello)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void End(NeighborLink* link, const absl::Status& why);

  const Options options_;
  const std::shared_ptr<Links> links_ = std::make_shared<Links>();
  const std::shared_ptr<NeighborCounters> counters_ =
      std::make_shared<NeighborCounters>();
  const std::shared_ptr<LentVersions> versions_ =
      std::make_shared<LentVersions>();
  std::unique_ptr<LinkListener> listener_;
  int quit_ = -1;  // an eventfd
  std::atomic<uint64_t> max_lent_bytes_{std::numeric_limits<uint64_t>::max()};
  // As in NeighborFigures.
  std::atomic<uint64_t> refused_requests_{0};
  std::atomic<uint64_t> refused_peers_{0};
  std::atomic<uint64_t> refused_loans_{0};
  std::atomic<uint64_t> refused_places_{0};

  absl::Mutex mutex_;
  // Oldest first.
  std::list<Pending> pending_ ABSL_GUARDED_BY(mutex_);

  std::thread thread_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SERVICE_NEIGHBORS_H_
