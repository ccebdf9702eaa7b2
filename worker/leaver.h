#ifndef HOLDFAST_WORKER_LEAVER_H_
#define HOLDFAST_WORKER_LEAVER_H_

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/cluster.h"
#include "common/trace/trace_parts.h"

namespace holdfast {

// Steps down for a process that is told to stop, and ends it. Thread-safe.
class Leaver {
 public:
  // From here on there is a cluster to leave, which must stay until
  // EndsByItself.
  void SetCluster(Cluster* cluster);

  // Holds it to its own end, and sees to it that it is written.
  Tracer* KeepTrace(std::unique_ptr<TraceFile> trace);

  // The process ends by itself, with an exit code of its own.
  void EndsByItself();

  // Leaves the cluster and ends the process with kExitRestart, unless it ends
  // by itself. Whatever the training thread computes or waits for is given up.
  void Stop(const std::string& signal);

 private:
  absl::Mutex mutex_;
  Cluster* cluster_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<TraceFile> trace_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_LEAVER_H_
