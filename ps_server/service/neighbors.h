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

// A ps' end of all its links with processes of the same host
// (docs/protocol/same_host.md): it makes them, lends values over them, and
// finds the gradients that they name.
//
// One thread takes connections and what is said on them; it sleeps otherwise.
// A connection that has not said yet whose it is counts for nothing: there are
// at most kMaxStrangers, of which the oldest makes way.
//
// Thread-safe.
class Neighbors {
 public:
  // [H2] How long a secret is good for, and how many there may be.
  static constexpr absl::Duration kSecretLife = absl::Seconds(10);
  static constexpr size_t kMaxSecrets = 1024;
  static constexpr size_t kMaxSecretsOfOne = 4;
  static constexpr size_t kMaxLinks = 1024;
  static constexpr size_t kMaxStrangers = 64;
  // Encoded elements of one message, in bytes: they are copied.
  static constexpr uint64_t kMaxCopiedBytes = uint64_t{16} << 20;

  struct Options {
    // Of the ps, for the log.
    std::string name;
    // Where its values lie.
    std::shared_ptr<SharedArena> arena;
    // Where the socket is made.
    std::string directory;
    LinkListener::Directory kind = LinkListener::Directory::kOwn;
    // Whoever asks for a link has shown a certificate; otherwise the process
    // that connects must be of this user.
    bool secure = false;
    // Outlives this object.
    const Clock* clock = nullptr;
    // Of the kernel: BootId(). A test may have it elsewhere.
    std::string boot_id;
  };

  // To be called before memory is taken from the arena. Errors: those of
  // LinkListener::Listen; UNAVAILABLE when there is no descriptor left.
  static absl::StatusOr<std::unique_ptr<Neighbors>> Start(Options options);
  // Closes all links.
  ~Neighbors();

  Neighbors(const Neighbors&) = delete;
  Neighbors& operator=(const Neighbors&) = delete;

  // [H1, H2] For the sender of `request`, which has been tested. Does not set
  // the generation.
  proto::LinkResponse Link(const proto::LinkRequest& request)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Lends what `sender` may read in place: of each range with a loan that is
  // his, the piece at the same index, which is of `version`, has a place for
  // its data if that can be.
  void Lend(const proto::Sender& sender, const LentVersion& version,
            const google::protobuf::RepeatedPtrField<proto::ReadRange>& ranges,
            std::vector<TensorPiece>* pieces);
  // Puts the data in for each place. EXACT elements stay where they are, and
  // may change while they are read; others are copied.
  // Errors: INVALID_ARGUMENT, naming the variable, for what is no place of the
  // sender's; UNAVAILABLE when its link has ended, or the loan is not offered
  // any more.
  absl::Status Borrow(const proto::Sender& sender,
                      std::vector<TensorPiece>* pieces);

  // What may be lent, beyond which values are sent: bytes over one link, and
  // distinct versions over all. Default: unlimited.
  void set_max_lent(uint64_t bytes_of_link, size_t versions) {
    max_lent_bytes_ = bytes_of_link;
    versions_->set_most(versions);
  }

  NeighborFigures figures() const;

 private:
  // Those that live, by number. The arena asks them, for as long as they are
  // there.
  struct Links {
    std::shared_ptr<NeighborLink> Find(uint64_t number) const
        ABSL_LOCKS_EXCLUDED(mutex);
    void TakeBack() const ABSL_LOCKS_EXCLUDED(mutex);

    mutable absl::Mutex mutex;
    std::map<uint64_t, std::shared_ptr<NeighborLink>> by_number
        ABSL_GUARDED_BY(mutex);
  };
  // A link that somebody has asked for.
  struct Pending {
    uint64_t number = 0;
    TaskId peer;
    std::string secret;
    absl::Time deadline;
  };

  explicit Neighbors(Options options);

  proto::LinkResponse Refuse(const std::string& why);
  void Run();
  // Takes connections in. False: there is no descriptor left for one.
  bool Accept(std::list<std::unique_ptr<LinkSocket>>* strangers);
  // [H4] What a stranger has said: the link that it has a right to. Null: it
  // has said nothing yet. Errors: why it has none.
  absl::StatusOr<std::shared_ptr<NeighborLink>> Greet(
      std::unique_ptr<LinkSocket>* stranger) ABSL_LOCKS_EXCLUDED(mutex_);
  // The pending link, which is used up. Errors: PERMISSION_DENIED.
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
