// SPDX-License-Identifier: Apache-2.0
#include "ps_server/membership.h"

#include <grpcpp/channel.h>

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/job/job_phase.h"
#include "common/job/task_id.h"
#include "common/rpc/channel.h"
#include "common/rpc/deadline.h"
#include "glog/logging.h"

namespace holdfast {
namespace {

// How often a wait checks whether it must stop.
constexpr absl::Duration kPoll = absl::Milliseconds(100);

std::optional<proto::JobState> VerdictIn(const proto::JobState& state) {
  return IsEnd(state.phase()) ? std::optional<proto::JobState>(state)
                              : std::nullopt;
}

}  // namespace

// Finds out whether the coordinator's process can be reached, which Session,
// busy with its lease, does not say.
class Membership::Coordinator {
 public:
  explicit Coordinator(const Session::Options& session)
      : channel_(MakeChannel(session.coordinator, /*ps=*/0,
                             ChannelKind::kControl, session.credentials)) {}

  // Tries to connect for at most kPoll.
  bool IsReachable() {
    return channel_->WaitForConnected(GrpcDeadline(SteadyNow() + kPoll));
  }

 private:
  const std::shared_ptr<grpc::Channel> channel_;
};

Membership::Membership(Options options, std::function<void(const End&)> on_end)
    : options_(std::move(options)),
      on_end_(std::move(on_end)),
      thread_([this] { Run(); }) {}

Membership::~Membership() { StopThread(); }

void Membership::StopThread() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

std::optional<proto::JobState> Membership::Leave(const std::string& error,
                                                 absl::Time deadline) {
  StopThread();
  if (session_ == nullptr) return std::nullopt;
  if (absl::Status status = session_->Close(error, deadline); !status.ok()) {
    LOG(WARNING) << "failed to leave the job: " << status.message();
  }
  return VerdictIn(session_->state());
}

void Membership::Run() {
  Coordinator coordinator(options_.session);
  if (absl::Status status = Join(); !status.ok()) {
    if (!stopping()) on_end_({status, std::nullopt});
    return;
  }
  LOG(INFO) << options_.session.task << " has joined";
  if (AwaitSilenceAfterDone(&coordinator)) {
    on_end_({absl::OkStatus(), VerdictIn(session_->state())});
  }
}

absl::Status Membership::Join() {
  Session::Options options = options_.session;
  options.deadline = SteadyNow() + options_.start_timeout;
  options.on_waiting = [](const std::string& what) {
    LOG(INFO) << "waiting for " << what;
  };
  options.patience = options_.recovery_timeout;
  options.on_change = [this](const Session::News& news) { OnChange(news); };
  // Parked while the lease of an earlier life runs.
  options.give_up = [this] { return stopping(); };
  HOLDFAST_ASSIGN_OR_RETURN(auto session, Session::Open(std::move(options)));
  session_ = std::move(session);
  return absl::OkStatus();
}

void Membership::OnChange(const Session::News& news) {
  if (!news.status.ok()) {
    const auto verdict = VerdictIn(news.state);
    on_end_({verdict.has_value()
                 ? news.status
                 : absl::UnavailableError(news.status.message()),
             verdict});
  } else if (IsOrderlyEnd(news.state.phase())) {
    absl::MutexLock lock(&mutex_);
    done_ = true;
  }
}

bool Membership::AwaitSilenceAfterDone(Coordinator* coordinator) {
  const auto done_or_stopping = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return done_ || stopping_;
  };
  {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&done_or_stopping));
  }
  absl::Time reached = SteadyNow();
  while (SteadyNow() - reached < options_.silence_after_done) {
    if (coordinator->IsReachable()) reached = SteadyNow();
    absl::MutexLock lock(&mutex_);
    if (mutex_.AwaitWithTimeout(absl::Condition(&stopping_), kPoll)) {
      return false;
    }
  }
  return true;
}

}  // namespace holdfast
