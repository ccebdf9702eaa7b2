// SPDX-License-Identifier: Apache-2.0
#include "ps_server/job_observer.h"

#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_replace.h"
#include "common/base/clock.h"
#include "common/checkpoint/file_system.h"
#include "common/process/log_event.h"
#include "common/process/process_name.h"
#include "glog/logging.h"

namespace holdfast {
namespace {

constexpr absl::Duration kLookPeriod = absl::Seconds(1);

}  // namespace

absl::StatusOr<std::unique_ptr<JobObserver>> JobObserver::Start(
    const Options& options, Coordinator* coordinator) {
  auto observer =
      absl::WrapUnique(new JobObserver(options.known_event, coordinator));
  if (!options.tensorboard_dir.empty()) {
    auto board = TensorBoard::Start(
        PosixFileSystem(), options.tensorboard_dir,
        absl::StrReplaceAll(ProcessName(), {{":", "."}}), options.known_event);
    if (!board.ok()) return board.status();
    observer->tensor_board_ = *std::move(board);
  }
  return observer;
}

void JobObserver::Look() {
  LogEvents();
  if (const absl::Time now = SteadyNow(); now >= next_look_) {
    next_look_ = now + kLookPeriod;
    if (tensor_board_ != nullptr) tensor_board_->Look(coordinator_);
    LookAtWait(now);
  }
  LogPhase();
}

void JobObserver::LookOnceMore() {
  LogEvents();
  if (tensor_board_ != nullptr) tensor_board_->Look(coordinator_);
}

void JobObserver::LogEvents() {
  const EventLog& log = coordinator_->events();
  if (log.last_number() == logged_event_) return;
  const proto::GetEventsResponse unseen = log.After(logged_event_);
  for (const proto::Event& event : unseen.events()) {
    LogEvent(event);
  }
  logged_event_ = log.last_number();
}

void JobObserver::LogPhase() {
  const proto::JobState& state = coordinator_->state();
  if (state.phase() == logged_phase_) return;
  logged_phase_ = state.phase();
  LOG(INFO) << "the job is " << proto::JobPhase_Name(state.phase())
            << (state.reason().empty() ? "" : ": ") << state.reason();
}

void JobObserver::LookAtWait(absl::Time now) {
  coordinator_->GetStatus({}, [&](const auto& status) {
    absl::MutexLock lock(&mutex_);
    // Waiting for the same thing in another generation is another wait.
    if (status->waiting_for() == waits_for_ &&
        status->generation() == waits_in_) {
      return;
    }
    waits_since_ = now;
    waits_for_ = status->waiting_for();
    waits_in_ = status->generation();
  });
}

std::optional<Watchdog::Wait> JobObserver::wait() const {
  absl::MutexLock lock(&mutex_);
  if (waits_for_.empty()) return std::nullopt;
  return Watchdog::Wait{waits_for_, SteadyNow() - waits_since_};
}

bool JobObserver::Stop(absl::Duration patience) {
  return tensor_board_ == nullptr || tensor_board_->Stop(patience);
}

}  // namespace holdfast
