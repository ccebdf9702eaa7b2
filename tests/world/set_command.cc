// SPDX-License-Identifier: Apache-2.0
#include "tests/world/set_command.h"

#include "absl/strings/match.h"
#include "absl/time/time.h"

namespace holdfast::sim {
namespace {

constexpr absl::Duration kAskAgainAfter = absl::Milliseconds(100);

}  // namespace

void SetRate(World* world, uint64_t step) {
  proto::SetLearningRateRequest request;
  request.set_factor(RateFactorOf(step));
  request.set_at_step(step);
  world->Call<proto::SetLearningRateRequest>(
      kOperator, kCoordinator, request,
      [=](const absl::StatusOr<proto::SetLearningRateResponse>& response) {
        if (response.ok()) {
          return world->Check(world->oracle().OnRateSet(step, world->disk()));
        }
        if (absl::StrContains(response.status().message(), "is over") ||
            absl::StrContains(response.status().message(), "has ended")) {
          return;
        }
        world->After(kOperator, kAskAgainAfter, [=] { SetRate(world, step); });
      });
}

}  // namespace holdfast::sim
