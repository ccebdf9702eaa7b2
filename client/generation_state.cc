// SPDX-License-Identifier: Apache-2.0
#include "client/generation_state.h"

#include <algorithm>
#include <optional>

namespace holdfast::client {

GlobalStep Placement::VersionOf(const std::vector<GlobalStep>& versions) const {
  std::optional<GlobalStep> least;
  for (uint32_t ps = 0; ps < versions.size(); ++ps) {
    if (asynchronous() && !Trains(ps)) continue;
    least = std::min(least.value_or(versions[ps]), versions[ps]);
  }
  return least.value_or(versions.front());
}

}  // namespace holdfast::client
