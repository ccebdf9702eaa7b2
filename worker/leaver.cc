// SPDX-License-Identifier: Apache-2.0
#include "worker/leaver.h"

#include <cstdlib>
#include <utility>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/process/exit_code.h"
#include "glog/logging.h"

namespace holdfast {

void Leaver::SetCluster(Cluster* cluster) {
  absl::MutexLock lock(&mutex_);
  cluster_ = cluster;
}

Tracer* Leaver::KeepTrace(std::unique_ptr<TraceFile> trace) {
  absl::MutexLock lock(&mutex_);
  trace_ = std::move(trace);
  return trace_->tracer();
}

void Leaver::EndsByItself() {
  absl::MutexLock lock(&mutex_);
  done_ = true;
}

void Leaver::Stop(const std::string& signal) {
  LOG(INFO) << "told to stop by " << signal;
  absl::MutexLock lock(&mutex_);
  if (done_) return;
  if (cluster_ != nullptr) {
    const absl::Status left =
        cluster_->Leave("", SteadyNow() + absl::Seconds(2));
    LOG_IF(WARNING, !left.ok()) << "failed to leave the cluster: " << left;
  }
  if (trace_ != nullptr) trace_->Finish();
  std::_Exit(kExitRestart);
}

}  // namespace holdfast
