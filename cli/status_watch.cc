// SPDX-License-Identifier: Apache-2.0
#include "cli/status_watch.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "client/cluster.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "glog/logging.h"

namespace holdfast {
namespace {

// The maximum time for which the destructor waits for a call.
constexpr absl::Duration kCallTimeout = absl::Seconds(1);

}  // namespace

StatusWatch::StatusWatch(const ClusterSpec& cluster,
                         const Credentials& credentials, absl::Duration period,
                         int events)
    : cluster_(cluster),
      credentials_(credentials),
      period_(period),
      events_wanted_(events),
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
  // If the descriptor is not readable, there has been no answer since the last
  // call.
  if (read(event_, &count, sizeof(count)) < 0) return std::nullopt;
  absl::MutexLock lock(&mutex_);
  return std::exchange(latest_, std::nullopt);
}

std::vector<proto::Event> StatusWatch::Events() const {
  absl::MutexLock lock(&mutex_);
  return {events_.begin(), events_.end()};
}

absl::Status StatusWatch::status() const {
  absl::MutexLock lock(&mutex_);
  return status_;
}

void StatusWatch::Run() {
  std::unique_ptr<Cluster> connection;
  do {
    const absl::Status asked = Ask(&connection);
    {
      absl::MutexLock lock(&mutex_);
      status_ = asked;
    }
    // Signalled even without an answer, so that displays can show that their
    // status is old.
    const uint64_t one = 1;
    PCHECK(write(event_, &one, sizeof(one)) == sizeof(one));
  } while (Pause());
}

absl::Status StatusWatch::Ask(std::unique_ptr<Cluster>* connection) {
  if (*connection == nullptr) {
    Cluster::Options options{.cluster = cluster_};
    options.credentials = credentials_;
    options.connect_timeout = kCallTimeout;
    options.same_host = false;  // it reads no values
    HOLDFAST_ASSIGN_OR_RETURN(auto connected,
                              Cluster::Connect(std::move(options)));
    *connection = std::move(connected);
  }
  HOLDFAST_ASSIGN_OR_RETURN(
      auto status, (*connection)->GetStatus(SteadyNow() + kCallTimeout));
  if (events_wanted_ > 0) {
    HOLDFAST_RETURN_IF_ERROR(AskForEvents(connection->get()));
  }
  absl::MutexLock lock(&mutex_);
  latest_ = std::move(status);
  return absl::OkStatus();
}

absl::Status StatusWatch::AskForEvents(Cluster* connection) {
  const auto last_number = [this]() -> uint64_t {
    absl::MutexLock lock(&mutex_);
    return events_.empty() ? 0 : events_.back().number();
  };
  auto answer =
      connection->GetEvents(last_number(), SteadyNow() + kCallTimeout);
  // A ps of an older version does not support events.
  if (absl::IsUnimplemented(answer.status())) return absl::OkStatus();
  if (!answer.ok()) return answer.status();
  absl::MutexLock lock(&mutex_);
  for (proto::Event& event : *answer->mutable_events()) {
    events_.push_back(std::move(event));
    if (events_.size() > events_wanted_) events_.pop_front();
  }
  return absl::OkStatus();
}

bool StatusWatch::Pause() {
  absl::MutexLock lock(&mutex_);
  return !mutex_.AwaitWithTimeout(absl::Condition(&stopped_), period_);
}

}  // namespace holdfast
