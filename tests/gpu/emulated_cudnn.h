#ifndef HOLDFAST_TESTS_GPU_EMULATED_CUDNN_H_
#define HOLDFAST_TESTS_GPU_EMULATED_CUDNN_H_

#include <functional>

#include "worker/backend/cuda/cudnn.h"

namespace holdfast {

// cuDNN's convolutions on the host, by their definition, as strict about
// arguments as cuDNN is where we know that. It does not do all of them, so that
// the ways around it are seen: with a window of 4 it proposes nothing
// deterministic, and with a stride of 2 and a window of 5 it does not support
// what it has proposed.
//
// Work goes to `enqueue`, that of the last call.
const Cudnn* EmulatedCudnn(std::function<void(std::function<void()>)> enqueue);

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_GPU_EMULATED_CUDNN_H_
