// Calls that wait at the coordinator for something to happen.
#ifndef HOLDFAST_PS_SERVER_COORDINATOR_PARKED_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_PARKED_H_

#include <cstddef>
#include <utility>
#include <vector>

namespace holdfast {

// Beyond it a call is answered at once, and may be asked again.
inline constexpr size_t kMaxParkedCalls = 65536;

// Takes from `parked` what `ready` tells to. Replies may come back with further
// calls, so they are called only on what has left the list.
template <typename Parked, typename Ready>
std::vector<Parked> TakeIf(std::vector<Parked>& parked, Ready ready) {
  std::vector<Parked> taken;
  std::vector<Parked> kept;
  for (Parked& p : parked) (ready(p) ? taken : kept).push_back(std::move(p));
  parked = std::move(kept);
  return taken;
}

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_PARKED_H_
