// SPDX-License-Identifier: Apache-2.0
#include "tests/world/stop_command.h"

#include <algorithm>

#include "absl/time/time.h"
#include "common/job/job_phase.h"

namespace holdfast::sim {
namespace {

constexpr absl::Duration kAskAgainAfter = absl::Seconds(1);
constexpr absl::Duration kPark = absl::Seconds(2);

}  // namespace

void StopCommand::Ask() {
  proto::StopRequest request;
  request.set_without_checkpoint(!world_->job().archive);
  request.set_wait_ms(absl::ToInt64Milliseconds(kPark));
  if (!generation_.has_value() && world_->coordinator() != nullptr) {
    generation_ = world_->coordinator()->generation().value();
  }
  if (generation_.has_value()) request.set_generation(*generation_);
  world_->Call<proto::StopRequest>(
      kOperator, kCoordinator, request,
      [this](const auto& response) { OnAnswer(response); });
}

void StopCommand::OnAnswer(
    const absl::StatusOr<proto::StopResponse>& response) {
  if (response.ok()) {
    if (IsEnd(response->state().phase())) return;
    if (generation_.has_value() && response->generation() != *generation_) {
      return LookAtEvents(response->generation());
    }
    generation_ = response->generation();
  }
  world_->After(kOperator, kAskAgainAfter, [this] { Ask(); });
}

void StopCommand::LookAtEvents(uint64_t generation) {
  world_->Call<proto::GetEventsRequest>(
      kOperator, kCoordinator, {},
      [this,
       generation](const absl::StatusOr<proto::GetEventsResponse>& response) {
        if (!response.ok()) {
          return world_->After(kOperator, kAskAgainAfter,
                               [=] { LookAtEvents(generation); });
        }
        const bool was_stopped =
            std::any_of(response->events().begin(), response->events().end(),
                        [](const proto::Event& event) {
                          return event.kind() == proto::Event::STOPPED;
                        });
        if (was_stopped) return;
        generation_ = generation;
        Ask();
      });
}

}  // namespace holdfast::sim
