// SPDX-License-Identifier: Apache-2.0
#include "cli/restarts.h"

#include <algorithm>

#include "common/process/daemon.h"

namespace holdfast {

bool WorthRestarting(const ExitStatus& ended) {
  if (ended.signal != 0) return true;
  return ended.code != kExitDone && ended.code != kExitFailed &&
         ended.code != kExitUsage;
}

std::optional<absl::Time> Restarts::Next(absl::Time started, absl::Time ended) {
  if (count_ == options_.most) return std::nullopt;
  ++count_;
  if (ended - started >= options_.long_run) pause_ = options_.first_pause;
  const absl::Time next = ended + pause_;
  pause_ = std::min(2 * pause_, options_.longest_pause);
  return next;
}

}  // namespace holdfast
