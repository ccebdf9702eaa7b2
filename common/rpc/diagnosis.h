// SPDX-License-Identifier: Apache-2.0
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

// The reason why there is no connection to a ps.
struct Diagnosis {
  enum class Kind {
    // No cause was found: the peer is merely silent, which may have any reason.
    kUnclear,
    // The cause is certain, but may go away by itself: tasks start in any
    // order, and names and certificates are replaced.
    kPassing,
    // The cause is certain, and lasts until flags, ClusterSpec or certificates
    // are changed.
    kMistake,
  };

  // Returns INVALID_ARGUMENT for kMistake, otherwise UNAVAILABLE. The message
  // is `name`, then `cause`.
  absl::Status ToStatus(absl::string_view name) const;

  Kind kind = Kind::kUnclear;
  // Such as "connection refused: nothing listens there". Names neither the ps
  // nor its address. Empty if no cause was found.
  std::string cause;
  // The task of this training that was found instead of the expected one.
  std::optional<TaskId> found;
};

// The method that asks a ps whether it is the expected task: each ps answers
// the health check of a service that has the name of its task,
// "/job:ps/task:1".
inline constexpr char kHealthCheck[] = "/grpc.health.v1.Health/Check";

// The answer of ps `self` to a health check of an unknown `service`: a
// NOT_FOUND that names `self`.
absl::Status NoSuchService(absl::string_view service, const TaskId& self);

// Interprets the answer to a health check of the service of ps task `ps`.
// NOT_FOUND without a task name comes from an older ps, and gives no cause.
Diagnosis JudgeHealthCheck(const absl::Status& answer, uint32_t ps);

// Connects to `address`, "host:port", and finds out what keeps gRPC from
// reaching ps task `ps` there: resolves the name, connects, inspects the first
// bytes received, makes a TLS handshake, and asks the server which task it is.
//
// Returns within `patience`, or shortly after `*cancelled` is set (if null, it
// cannot be cancelled). A DNS look-up that takes longer is left to a detached
// thread, which exits when the look-up ends.
Diagnosis Diagnose(const std::string& address, uint32_t ps,
                   const Credentials& credentials, absl::Duration patience,
                   const std::atomic<bool>* cancelled);

// The longest time that one diagnosis of a Diagnoser may take.
inline constexpr absl::Duration kLookPatience = absl::Seconds(3);

// Diagnoses in a background thread, on behalf of a thread that waits for a
// connection.
//
// Thread-compatible.
class Diagnoser {
 public:
  Diagnoser(std::string address, uint32_t ps, Credentials credentials)
      : address_(std::move(address)),
        ps_(ps),
        credentials_(std::move(credentials)) {}
  // Cancels a diagnosis in progress.
  ~Diagnoser();

  Diagnoser(const Diagnoser&) = delete;
  Diagnoser& operator=(const Diagnoser&) = delete;

  // Starts a diagnosis, unless one is in progress or has just ended. Returns
  // the last result; kUnclear without a cause before the first diagnosis has
  // ended.
  Diagnosis Look();

  // Discards the last result, because the ps was reached.
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
