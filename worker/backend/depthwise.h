// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_BACKEND_DEPTHWISE_H_
#define HOLDFAST_WORKER_BACKEND_DEPTHWISE_H_

#include "worker/backend/backend.h"

namespace holdfast {

// Whether each channel of the images is a group of its own, so that a filter
// sees one channel. As matrix products, such convolutions would be one small
// product per channel; backends compute them directly instead.
inline bool IsDepthwise(const Convolution& convolution) {
  return convolution.groups > 1 &&
         convolution.groups == convolution.window.channels;
}

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_DEPTHWISE_H_
