#ifndef HOLDFAST_CLI_STATUS_WATCH_H_
#define HOLDFAST_CLI_STATUS_WATCH_H_

#include <optional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/cluster_spec.h"
#include "common/rpc/credentials.h"
#include "proto/coordinator.pb.h"

namespace holdfast {

// Asks a cluster for its status over and over, on a thread of its own, as a
// reader that the cluster does not count as one of its tasks. A cluster that
// does not answer, or not yet, is asked again.
//
// Thread-safe.
class StatusWatch {
 public:
  // `period` between answers. Shorter is livelier, and costs the coordinator a
  // call each. `credentials`: an operator's, where the cluster has any.
  StatusWatch(const ClusterSpec& cluster, const Credentials& credentials,
              absl::Duration period);
  // Waits at most about a second for a call that is under way.
  ~StatusWatch();

  StatusWatch(const StatusWatch&) = delete;
  StatusWatch& operator=(const StatusWatch&) = delete;

  // Readable, for poll(2), when there is an answer that Take has not given.
  int fd() const { return event_; }

  // The latest answer, once.
  std::optional<proto::GetStatusResponse> Take();

 private:
  void Run();
  // Sleeps for a period. False: it is time to end.
  bool Pause();

  const ClusterSpec cluster_;
  const Credentials credentials_;
  const absl::Duration period_;
  const int event_;  // an eventfd

  absl::Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<proto::GetStatusResponse> latest_ ABSL_GUARDED_BY(mutex_);

  std::thread thread_;
};

}  // namespace holdfast

#endif  // HOLDFAST_CLI_STATUS_WATCH_H_
