// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_PRECISION_H_
#define HOLDFAST_WORKER_PRECISION_H_

#include "proto/job.pb.h"
#include "worker/backend/backend.h"

namespace holdfast {

// Returns the precision to which `job` wants the factors of products rounded.
inline Precision PrecisionOf(const proto::Job& job) {
  if (job.precision().has_bfloat16()) return Precision::kBfloat16;
  if (job.precision().has_float16()) return Precision::kFloat16;
  return Precision::kFloat32;
}

// Returns whether `job` wants values between products and batch norms rounded,
// too (DeviceOptions::activations).
inline bool RoundsActivations(const proto::Job& job) {
  return job.precision().bfloat16().activations() ||
         job.precision().float16().activations();
}

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_PRECISION_H_
