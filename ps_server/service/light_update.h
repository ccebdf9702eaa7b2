#ifndef HOLDFAST_PS_SERVER_SERVICE_LIGHT_UPDATE_H_
#define HOLDFAST_PS_SERVER_SERVICE_LIGHT_UPDATE_H_

#include <cstdint>

namespace holdfast {

// Bytes of gradients that are applied sooner than another thread is woken: for
// Strand::RunOrPost. A larger one would keep a thread that serves calls.
inline constexpr int64_t kLightUpdateBytes = 128 << 10;

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SERVICE_LIGHT_UPDATE_H_
