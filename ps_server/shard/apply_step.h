#ifndef HOLDFAST_PS_SERVER_SHARD_APPLY_STEP_H_
#define HOLDFAST_PS_SERVER_SHARD_APPLY_STEP_H_

#include <memory>
#include <optional>
#include <vector>

#include "common/buffer.h"
#include "proto/shard.pb.h"
#include "ps_server/optimizer/optimizer.h"
#include "ps_server/store/dense_store.h"

namespace holdfast {

// A gradient that counts, with its share of the step's mean.
struct WeightedGradient {
  float weight = 0;
  // By slice of the store; empty for slices that are not trainable.
  std::vector<Buffer> by_slice;
};

// Brings `store` to its next version: for each element of each trainable slice
//
//   g = w_0 g_0 + w_1 g_1 + ...   (float32, added in the order of `gradients`)
//
// and then the optimizer's rule, in one pass over memory. With a `clip_value`
// each element of each gradient is first brought into [-clip_value,
// clip_value]; NaN stays NaN. `scalars` and `optimizers` go by the index in
// StoredSlice::variable. `gradients` is not empty and covers every trainable
// slice. Cannot fail.
void ApplyStep(const std::vector<WeightedGradient>& gradients,
               const std::vector<proto::StepScalars>& scalars,
               const std::vector<std::unique_ptr<Optimizer>>& optimizers,
               DenseStore* store,
               std::optional<float> clip_value = std::nullopt);

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SHARD_APPLY_STEP_H_
