#include "ps_server/shard/apply_step.h"

#include <algorithm>
#include <array>
#include <utility>

namespace holdfast {
namespace {

// Elements worked on at a time: what is summed, and a copy of what was cut by a
// border between buffers, stay in the first-level cache.
constexpr size_t kBlock = 2048;

using Block = std::array<float, kBlock>;

// Sets `sum` to weight x f(gradient), or adds that to it.
template <typename Function>
void Accumulate(bool add, float weight, const float* gradient, size_t count,
                Function f, float* sum) {
  if (add) {
    for (size_t i = 0; i < count; ++i) sum[i] += weight * f(gradient[i]);
  } else {
    for (size_t i = 0; i < count; ++i) sum[i] = weight * f(gradient[i]);
  }
}

void UpdateSlice(const std::vector<WeightedGradient>& gradients, size_t slice,
                 const proto::StepScalars& scalars, const Optimizer& optimizer,
                 std::optional<float> clip_value, const StoreVersion& before,
                 DenseStore::Draft& draft, DenseStore& store) {
  std::vector<FloatReader> readers;
  for (const WeightedGradient& gradient : gradients) {
    readers.emplace_back(&gradient.by_slice[slice]);
  }
  Block sum, scratch;
  const StoredSlice& info = store.slices()[slice];
  for (size_t c = 0; c < info.num_chunks(); ++c) {
    const size_t size = info.chunk_size(c);
    const float* value = before.slices[slice][c].get();
    float* next = draft.written[slice][c].get();
    std::vector<float*> slots = store.slots(slice, c);
    for (size_t at = 0; at < size; at += kBlock) {
      const size_t count = std::min(kBlock, size - at);
      for (size_t r = 0; r < readers.size(); ++r) {
        const float* g = readers[r].Next(count, scratch.data());
        const float weight = gradients[r].weight;
        if (clip_value.has_value()) {
          const auto clip = [c = *clip_value](float x) {
            const float below = x > c ? c : x;
            return below < -c ? -c : below;
          };
          Accumulate(r > 0, weight, g, count, clip, sum.data());
        } else {
          const auto keep = [](float x) { return x; };
          Accumulate(r > 0, weight, g, count, keep, sum.data());
        }
      }
      optimizer.Apply(count, scalars, value + at, sum.data(), slots, next + at);
      for (float*& slot : slots) slot += count;
    }
  }
}

}  // namespace

void ApplyStep(const std::vector<WeightedGradient>& gradients,
               const std::vector<proto::StepScalars>& scalars,
               const std::vector<std::unique_ptr<Optimizer>>& optimizers,
               DenseStore* store, std::optional<float> clip_value) {
  DenseStore::Draft draft = store->Reserve();
  const std::shared_ptr<const StoreVersion> before = store->newest();
  for (size_t i = 0; i < store->slices().size(); ++i) {
    const StoredSlice& slice = store->slices()[i];
    if (!slice.trainable()) continue;
    const uint32_t optimizer = slice.variable.optimizer();
    UpdateSlice(gradients, i, scalars[optimizer], *optimizers[optimizer],
                clip_value, *before, draft, *store);
  }
  store->Publish(std::move(draft));
}

}  // namespace holdfast
