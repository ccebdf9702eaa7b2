// SPDX-License-Identifier: Apache-2.0
#include "tests/world/session.h"

#include <algorithm>
#include <utility>

#include "common/job/job_phase.h"
#include "common/job/task_id.h"
#include "common/rpc/rpc_limits.h"
#include "tests/world/world.h"

namespace holdfast::sim {
namespace {

// The pause before a call that reached no process is sent again.
constexpr absl::Duration kRetryAfter = absl::Milliseconds(50);
// The pause before a task whose place is taken asks for it again.
constexpr absl::Duration kTakenRetryAfter = absl::Milliseconds(500);
// The pause between an answer to a renewal without news and the next renewal.
constexpr absl::Duration kRenewAfter = absl::Milliseconds(20);
// The same once the job has ended, when renewals are not parked any more.
constexpr absl::Duration kRenewEndedAfter = absl::Seconds(1);
// [L1] The longest time for which a registration is parked.
constexpr absl::Duration kRegisterPark = absl::Seconds(2);
// The longest time for which a renewal is parked.
constexpr absl::Duration kLongestPoll = absl::Seconds(1);

bool MayBeAskedAgain(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

}  // namespace

proto::RegisterRequest RegisterRequestOf(const World& world, const char* job,
                                         uint32_t index, uint64_t nonce) {
  proto::RegisterRequest request;
  request.mutable_sender()->mutable_task()->set_job(job);
  request.mutable_sender()->mutable_task()->set_index(index);
  request.set_nonce(nonce);
  request.set_protocol_version(kProtocolVersion);
  request.set_process(absl::StrCat("process ", nonce));
  request.set_num_ps(world.num_ps());
  request.set_num_workers(world.job().num_workers);
  if (job == absl::string_view(kWorkerJob)) {
    request.set_num_workers(std::max(world.job().num_workers, index + 1));
    request.set_job_digest(world.job_digest());
    request.set_data_digest("data");
  } else {
    request.set_memory_limit_bytes(world.job().memory_limit_bytes);
  }
  return request;
}

Session::Session(World* world, Node node, const proto::RegisterRequest& request,
                 Hooks hooks)
    : world_(world),
      node_(node),
      request_(request),
      hooks_(std::move(hooks)),
      sender_(request.sender()) {}

void Session::Register() {
  request_.mutable_sender()->set_generation(sender_.generation());
  request_.set_wait_ms(absl::ToInt64Milliseconds(kRegisterPark));
  world_->Call<proto::RegisterRequest>(
      node_, kCoordinator, request_,
      [this](const absl::StatusOr<proto::RegisterResponse>& response) {
        OnRegistered(response);
      });
}

void Session::OnRegistered(
    const absl::StatusOr<proto::RegisterResponse>& response) {
  const auto again = [this] { Register(); };
  if (MayBeAskedAgain(response.status())) {
    return world_->After(node_, kRetryAfter, again);
  }
  if (absl::IsAlreadyExists(response.status())) {
    return world_->After(node_, kTakenRetryAfter, again);
  }
  if (!response.ok()) return hooks_.on_refused(response.status());
  if (response->incarnation() == 0) {
    return world_->After(node_, kRenewAfter, again);
  }
  lease_ = absl::Milliseconds(response->lease_ms());
  sender_.set_incarnation(response->incarnation());
  sender_.set_generation(response->generation());
  hooks_.on_sender(sender_);
  Renew();
}

void Session::Renew() {
  proto::RenewLeaseRequest request;
  *request.mutable_sender() = sender_;
  request.set_wait_ms(
      absl::ToInt64Milliseconds(std::min(lease_ / 3, kLongestPoll)));
  request.set_known_phase(phase_);
  world_->Call<proto::RenewLeaseRequest>(
      node_, kCoordinator, request,
      [this](const absl::StatusOr<proto::RenewLeaseResponse>& response) {
        OnRenewed(response);
      });
}

void Session::OnRenewed(
    const absl::StatusOr<proto::RenewLeaseResponse>& response) {
  const auto again = [this] { Renew(); };
  if (MayBeAskedAgain(response.status())) {
    return world_->After(node_, kRetryAfter, again);
  }
  if (absl::IsNotFound(response.status())) return Register();
  if (!response.ok()) return hooks_.on_refused(response.status());
  const bool is_news = response->generation() != sender_.generation() ||
                       response->state().phase() != phase_;
  phase_ = response->state().phase();
  if (response->generation() != sender_.generation()) {
    sender_.set_generation(response->generation());
    hooks_.on_sender(sender_);
  }
  hooks_.on_news(*response);
  const bool ended = IsEnd(phase_);
  if (is_news && !ended) return Renew();
  world_->After(node_, ended ? kRenewEndedAfter : kRenewAfter, again);
}

}  // namespace holdfast::sim
