// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/grpc_log.h"

#include <grpc/support/log.h>

#include <map>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "glog/logging.h"

namespace holdfast {
namespace {

constexpr absl::Duration kEvery = absl::Seconds(10);

// When each source line may log again. Never destroyed, because gRPC's threads
// may outlive everything else.
class Places {
 public:
  bool MaySpeak(const gpr_log_func_args& line) {
    const absl::Time now = SteadyNow();
    absl::MutexLock lock(&mutex_);
    absl::Time& next =
        next_.try_emplace({line.file, line.line}, absl::InfinitePast())
            .first->second;
    if (now < next) return false;
    next = now + kEvery;
    return true;
  }

 private:
  absl::Mutex mutex_;
  std::map<std::pair<std::string, int>, absl::Time> next_
      ABSL_GUARDED_BY(mutex_);
};

void Log(gpr_log_func_args* line) {
  static auto* const places = new Places;
  if (!places->MaySpeak(*line)) return;
  google::LogMessage(line->file, line->line, google::GLOG_INFO).stream()
      << line->message;
}

}  // namespace

void LimitGrpcLog() { gpr_set_log_function(Log); }

}  // namespace holdfast
