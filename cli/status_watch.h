// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_STATUS_WATCH_H_
#define HOLDFAST_CLI_STATUS_WATCH_H_

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/cluster.h"
#include "common/job/cluster_spec.h"
#include "common/rpc/credentials.h"
#include "proto/coordinator.pb.h"

namespace holdfast {

// Asks a cluster for its status periodically, on a thread of its own, as a
// reader that is not a task of the cluster. A cluster that does not answer
// (yet) is asked again.
//
// Thread-safe.
class StatusWatch {
 public:
  // `period` is the time between answers; each costs the coordinator a call.
  // `credentials` are an operator's, if the cluster has certificates. `events`
  // is the number of newest events to ask for; 0, which costs nothing, for
  // none.
  StatusWatch(const ClusterSpec& cluster, const Credentials& credentials,
              absl::Duration period, int events = 0);
  // Waits at most about a second for a call in flight.
  ~StatusWatch();

  StatusWatch(const StatusWatch&) = delete;
  StatusWatch& operator=(const StatusWatch&) = delete;

  // A descriptor for poll(2). It becomes readable each time the cluster has
  // been asked, when there is an answer, or status() says why there is none;
  // and stays readable until Take is called.
  int fd() const { return event_; }

  // Returns the latest answer, if it has not been taken yet.
  std::optional<proto::GetStatusResponse> Take();

  // The newest events, oldest first.
  std::vector<proto::Event> Events() const;
  // Why the cluster did not answer when it was last asked; OK if it did.
  absl::Status status() const;

 private:
  void Run();
  // Asks once, over `connection`, which is created if it is null.
  absl::Status Ask(std::unique_ptr<Cluster>* connection);
  absl::Status AskForEvents(Cluster* connection);
  // Sleeps for a period. Returns false when the thread must end.
  bool Pause();

  const ClusterSpec cluster_;
  const Credentials credentials_;
  const absl::Duration period_;
  const size_t events_wanted_;
  const int event_;  // an eventfd

  mutable absl::Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<proto::GetStatusResponse> latest_ ABSL_GUARDED_BY(mutex_);
  std::deque<proto::Event> events_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);

  std::thread thread_;
};

}  // namespace holdfast

#endif  // HOLDFAST_CLI_STATUS_WATCH_H_
