// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_SHARD_APPLY_STEP_H_
#define HOLDFAST_PS_SERVER_SHARD_APPLY_STEP_H_

#include <memory>
#include <optional>
#include <vector>

#include "common/base/simd.h"
#include "common/base/thread_pool.h"
#include "common/tensor/encoding.h"
#include "proto/shard.pb.h"
#include "ps_server/optimizer/optimizer.h"
#include "ps_server/store/dense_store.h"

namespace holdfast {

// One of the gradients that make up a step.
struct WeightedGradient {
  float weight = 0;
  // Indexed by slice of the store: the pieces of the slice's gradient, from
  // front to back. Empty for slices that are not trainable.
  std::vector<std::vector<EncodedElements>> by_slice;
  // Replaces `weight` for variables with a moving average.
  float share = 0;
};

// The gradients that make up a step.
struct GradientSum {
  std::vector<WeightedGradient> terms;
  // The divisor of the sum by weights; above 0 and finite.
  float weight_divisor = 1;
  // The divisor of the sum by shares; above 0 and finite.
  float share_divisor = 1;
};

struct ApplyOptions {
  // Each element of each gradient is first clipped to [-clip_value,
  // clip_value]; NaN stays NaN. Absent: no clipping.
  std::optional<float> clip_value;
  // Threads that help with large updates. Null: the caller's thread does all
  // the work.
  ThreadPool* threads = nullptr;
  Simd simd = BestSimd();
};

// Brings `store` to its next version: for each element of each trainable slice
//
//   g = (w_0 g_0 + w_1 g_1 + ...) / d   (float32, added in the order of terms,
//                                        w the weights and d their divisor)
//
// and then applies the optimizer's rule, in one pass over memory. Gradients are
// read from the buffers in which they were received. A variable with a moving
// average has its own rule, with shares and their divisor instead of weights;
// its gradient is not clipped. The bits do not depend on threads or on the SIMD
// level. `scalars` and `optimizers` are indexed by the optimizer that
// StoredSlice::variable names. `sum` has at least one term, each of which
// covers every trainable slice. Cannot fail.
void ApplyStep(const GradientSum& sum,
               const std::vector<proto::StepScalars>& scalars,
               const std::vector<std::unique_ptr<Optimizer>>& optimizers,
               const ApplyOptions& options, DenseStore* store);

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SHARD_APPLY_STEP_H_
