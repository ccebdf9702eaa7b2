#include "cli/status_watch.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "client/cluster.h"
#include "common/clock.h"
#include "glog/logging.h"

namespace holdfast {
namespace {

// So long does the destructor wait for a call, at most.
constexpr absl::Duration kCallTimeout = absl::Seconds(1);

}  // namespace

StatusWatch::StatusWatch(const ClusterSpec& cluster,
                         const Credentials& credentials, absl::Duration period)
    : cluster_(cluster),
      credentials_(credentials),
      period_(period),
      event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  PCHECK(event_ >= 0);
  thread_ = std::thread(&StatusWatch::Run, this);
}

StatusWatch::~StatusWatch() {
  {
    absl::MutexLock lock(&mutex_);
    stopped_ = true;
  }
  thread_.join();
  close(event_);
}

std::optional<proto::GetStatusResponse> StatusWatch::Take() {
  uint64_t count;
  // Not readable: there has been no answer since.
  if (read(event_, &count, sizeof(count)) < 0) return std::nullopt;
  absl::MutexLock lock(&mutex_);
  return std::exchange(latest_, std::nullopt);
}

void StatusWatch::Run() {
  std::unique_ptr<Cluster> connection;
  do {
    if (connection == nullptr) {
      Cluster::Options options{.cluster = cluster_};
      options.credentials = credentials_;
      options.connect_timeout = kCallTimeout;
      auto connected = Cluster::Connect(std::move(options));
      if (!connected.ok()) continue;
      connection = *std::move(connected);
    }
    auto status = connection->GetStatus(SteadyNow() + kCallTimeout);
    if (!status.ok()) continue;
    {
      absl::MutexLock lock(&mutex_);
      latest_ = *std::move(status);
    }
    const uint64_t one = 1;
    PCHECK(write(event_, &one, sizeof(one)) == sizeof(one));
  } while (Pause());
}

bool StatusWatch::Pause() {
  absl::MutexLock lock(&mutex_);
  return !mutex_.AwaitWithTimeout(absl::Condition(&stopped_), period_);
}

}  // namespace holdfast
