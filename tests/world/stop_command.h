// SPDX-License-Identifier: Apache-2.0

// An operator who stops the job, as `holdfast stop` does (cli/stop.cc).
#ifndef HOLDFAST_TESTS_WORLD_STOP_COMMAND_H_
#define HOLDFAST_TESTS_WORLD_STOP_COMMAND_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "proto/coordinator.pb.h"
#include "tests/world/world.h"

namespace holdfast::sim {

// Asks until the job has ended. If ps 0 has died in the meantime, its events
// show whether the job was stopped before and is started again; otherwise the
// next life is asked.
class StopCommand {
 public:
  // `world` must outlive the command.
  explicit StopCommand(World* world) : world_(world) {}

  void Ask();

 private:
  void OnAnswer(const absl::StatusOr<proto::StopResponse>& response);
  void LookAtEvents(uint64_t generation);

  World* const world_;
  // The last generation heard of.
  std::optional<uint64_t> generation_;
};

}  // namespace holdfast::sim

#endif  // HOLDFAST_TESTS_WORLD_STOP_COMMAND_H_
