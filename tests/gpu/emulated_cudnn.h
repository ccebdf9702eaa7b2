// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_TESTS_GPU_EMULATED_CUDNN_H_
#define HOLDFAST_TESTS_GPU_EMULATED_CUDNN_H_

#include <functional>

#include "worker/backend/cuda/cudnn.h"

namespace holdfast {

// cuDNN's convolutions on the host, computed by definition, and as strict about
// arguments as cuDNN is known to be. Some convolutions are not supported, so
// that the fallbacks are tested: for a window of 4 it proposes no deterministic
// algorithm, and for a stride of 2 and a window of 5 it does not support the
// algorithm that it has proposed.
//
// Work goes to the `enqueue` of the last call.
const Cudnn* EmulatedCudnn(std::function<void(std::function<void()>)> enqueue);

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_GPU_EMULATED_CUDNN_H_
