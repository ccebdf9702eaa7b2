#include "worker/input/batch.h"

#include <algorithm>

namespace holdfast {

std::vector<Batch> CutBatch(const Batch& batch, uint32_t parts) {
  const int64_t examples = batch.size();
  const int64_t count = std::min<int64_t>(parts, examples);
  std::vector<Batch> cut;
  int64_t begin = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t size = examples / count + (i < examples % count ? 1 : 0);
    const int64_t example_size = batch.inputs.size() / examples;
    Batch part;
    part.inputs =
        batch.inputs.subspan(begin * example_size, size * example_size);
    part.labels = batch.labels.subspan(begin, size);
    if (!batch.positions.empty()) {
      part.positions = batch.positions.subspan(begin, size);
    }
    cut.push_back(part);
    begin += size;
  }
  return cut;
}

}  // namespace holdfast
