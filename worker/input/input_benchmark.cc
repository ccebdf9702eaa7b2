// SPDX-License-Identifier: Apache-2.0

// Measures how many examples per second a worker's input threads produce, from
// images of 28 x 28 bytes in batches of 100: once unchanged, and once moved,
// mirrored and normalised. The CPU time is that of all threads.

#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>

#include "common/base/random.h"
#include "common/data/dataset.h"
#include "common/data/idx.h"
#include "worker/input/batch_pipeline.h"

namespace holdfast {
namespace {

constexpr int64_t kImages = 60000;
constexpr int64_t kSide = 28;
constexpr int64_t kBatchSize = 100;

std::unique_ptr<Dataset> RandomImages(const Dataset::Options& options) {
  const char* const folder = std::getenv("TMPDIR");
  const std::string prefix =
      std::string(folder != nullptr ? folder : "/tmp") + "/input_benchmark.";
  const auto write = [&](const std::string& name,
                         const std::vector<int64_t>& shape, int64_t size,
                         int limit) {
    std::string content = IdxHeader(shape);
    for (int64_t i = 0; i < size; ++i) {
      content.push_back(static_cast<char>(
          Philox4x32({static_cast<uint32_t>(i)}, {})[0] % limit));
    }
    std::ofstream(prefix + name, std::ios::binary) << content;
  };
  write("images", {kImages, kSide, kSide}, kImages * kSide * kSide, 256);
  write("labels", {kImages}, kImages, 10);
  auto made = Dataset::OpenIdx(prefix + "images", prefix + "labels", options);
  std::remove((prefix + "images").c_str());
  std::remove((prefix + "labels").c_str());
  return made.ok() ? *std::move(made) : nullptr;
}

// Arguments: threads; whether images are changed.
void BM_MakeBatches(benchmark::State& state) {
  const bool changes = state.range(1) != 0;
  static const std::unique_ptr<Dataset> plain = RandomImages({});
  static const std::unique_ptr<Dataset> normalised =
      RandomImages({1.0f / 255, 0.286f, 0.353f});
  const Dataset* const source = changes ? normalised.get() : plain.get();
  if (source == nullptr) return state.SkipWithError("no images");
  const auto augmenter = ImageAugmenter::Create(
      source->spec().shape, {.max_shift = 2,
                             .horizontal_flip = true,
                             .fill = changes ? -0.286f / 0.353f : 0});

  BatchPipeline::Options options;
  options.batch_size = kBatchSize;
  options.threads = static_cast<int>(state.range(0));
  options.prefetch = 4;
  if (changes) options.augmenter = &*augmenter;
  const auto pipeline = BatchPipeline::Start(source, options);
  uint64_t step = 0;
  for (auto _ : state) {
    const auto batch =
        (*pipeline)->Next(GlobalStep(step++), 0, absl::InfiniteFuture());
    if (!batch.ok()) return state.SkipWithError("no batch");
  }
  state.SetItemsProcessed(state.iterations() * kBatchSize);
}
BENCHMARK(BM_MakeBatches)
    ->ArgNames({"threads", "changes"})
    ->ArgsProduct({{1, 2}, {0, 1}})
    ->MeasureProcessCPUTime()
    ->UseRealTime();

}  // namespace
}  // namespace holdfast

BENCHMARK_MAIN();
