#ifndef HOLDFAST_COMMON_RPC_DIAGNOSIS_H_
#define HOLDFAST_COMMON_RPC_DIAGNOSIS_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/job/task_id.h"
#include "common/rpc/credentials.h"

namespace holdfast {

// Why there is no connection with a ps.
struct Diagnosis {
  enum class Kind {
    // Nothing was found, or silence, which may have any reason.
    kUnclear,
    // Certain; may pass by itself, for tasks start in any order, and names and
    // certificates are replaced.
    kPassing,
    // Certain; lasts until somebody changes flags, ClusterSpec or certificates.
    kMistake,
  };

  // INVALID_ARGUMENT for a mistake, otherwise UNAVAILABLE, with `cause` behind
  // `name`.
  absl::Status ToStatus(absl::string_view name) const;

  Kind kind = Kind::kUnclear;
  // "connection refused: nothing listens there". Names neither the ps nor its
  // address. Empty: nothing was found.
  std::string cause;
  // Which task of this training was found instead of the one expected.
  std::optional<TaskId> found;
};

// The method by which a ps is asked whether it is the task that is meant: in
// addition to those of gRPC's health protocol it has one service with the name
// of its task, "/job:ps/task:1".
inline constexpr char kHealthCheck[] = "/grpc.health.v1.Health/Check";

// The refusal of ps `self` to be asked for `service`: NOT_FOUND.
absl::Status NoSuchService(absl::string_view service, const TaskId& self);

// What the answer of whoever was asked for the service of ps task `ps` says.
// NOT_FOUND without a name is that of an older ps, and says nothing.
Diagnosis JudgeHealthCheck(const absl::Status& answer, uint32_t ps);

// Connects with `address`, "host:port", and finds out what keeps gRPC from
// reaching ps task `ps` there: looks up the name, connects, looks at the first
// bytes that come, makes a TLS handshake, and asks who it is.
//
// Returns after `patience` at the latest, or shortly after `*cancelled` is set
// (null: cannot be cancelled). A look-up in the DNS that takes longer is left
// to a thread, which ends with it.
Diagnosis Diagnose(const std::string& address, uint32_t ps,
                   const Credentials& credentials, absl::Duration patience,
                   const std::atomic<bool>* cancelled);

// How long one look of a Diagnoser may take.
inline constexpr absl::Duration kLookPatience = absl::Seconds(3);

// Diagnoses from a thread of its own, for one that waits for a connection.
//
// Thread-compatible.
class Diagnoser {
 public:
  Diagnoser(std::string address, uint32_t ps, Credentials credentials)
      : address_(std::move(address)),
        ps_(ps),
        credentials_(std::move(credentials)) {}
  // Cancels a look that is under way.
  ~Diagnoser();

  Diagnoser(const Diagnoser&) = delete;
  Diagnoser& operator=(const Diagnoser&) = delete;

  // Starts a look, unless one is under way or has just ended. Returns what the
  // last one has found; kUnclear without a cause before the first has ended.
  Diagnosis Look();

  // Forgets what was found: the ps was reached.
  void Forget();

 private:
  void StopLooking();

  const std::string address_;
  const uint32_t ps_;
  const Credentials credentials_;
  std::thread thread_;
  std::atomic<bool> cancelled_{false};

  absl::Mutex mutex_;
  bool looking_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time next_look_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  Diagnosis last_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_RPC_DIAGNOSIS_H_
