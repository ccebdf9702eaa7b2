// SPDX-License-Identifier: Apache-2.0

// Bags on the fake device: one copy brings their parts, and operations wait for
// it.

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/stream/host_runtime.h"
#include "worker/backend/stream/stream_backend.h"
#include "worker/backend/stream/testing/host_device.h"
#include "worker/backend/testing/test_values.h"

namespace holdfast {
namespace {

using Values = std::vector<float>;

// Bags of a random batch; the caller may move their parts.
struct Batch {
  static constexpr int64_t kBags = 12;
  static constexpr int64_t kRows = 7;
  static constexpr int64_t kCols = 6;

  Batch(bool weighted, std::mt19937* random) : offsets{0} {
    std::vector<std::vector<uint32_t>> by_row(kRows);
    for (uint32_t b = 0; b < kBags; ++b) {
      for (uint32_t use = (*random)() % 4; use > 0; --use) {
        const uint32_t row = (*random)() % kRows;
        by_row[row].push_back(static_cast<uint32_t>(rows.size()));
        rows.push_back(row);
        bags.push_back(b);
        if (weighted) weights.push_back((*random)() % 8 * 0.25f);
      }
      offsets.push_back(static_cast<uint32_t>(rows.size()));
    }
    begins = {0};
    for (const auto& of_row : by_row) {
      uses.insert(uses.end(), of_row.begin(), of_row.end());
      begins.push_back(static_cast<uint32_t>(uses.size()));
    }
    matrix.resize(kRows * kCols);
    for (float& value : matrix) value = (*random)() % 100 * 0.01f;
  }

  Bags Get() const {
    Bags made;
    made.rows = rows;
    made.bags = bags;
    made.weights = weights;
    made.offsets = offsets;
    made.uses = uses;
    made.begins = begins;
    return made;
  }

  std::vector<uint32_t> rows, bags, offsets, uses, begins;
  Values weights;
  Values matrix;
};

// Runs all operations on a batch's bags, and keeps their results one after the
// other.
class Program {
 public:
  Program(Backend* backend, const Batch& batch, int64_t merged)
      : backend_(backend) {
    constexpr int64_t kRows = Batch::kRows;
    constexpr int64_t kCols = Batch::kCols;
    const int64_t num_bags = Batch::kBags / merged;
    const auto uploaded = backend_->UploadBags(batch.Get(), &staging_);
    EXPECT_TRUE(uploaded.ok()) << uploaded.status();
    const DeviceBags bags = uploaded->Merged(merged);
    const auto rows =
        backend_->Upload(batch.matrix, kRows, kCols, &rows_staging_);
    EXPECT_TRUE(rows.ok()) << rows.status();
    const Matrix y = Make(num_bags, kCols);
    const Matrix by_rows = Make(kRows, kCols);
    const Matrix sums = Make(num_bags, kCols);
    const Matrix pairs = Make(num_bags, 1);
    const Matrix dots = Make(num_bags, 3);
    const Matrix dot_gradient = Make(num_bags, kCols);
    backend_->SumBags(bags, *rows, y);
    backend_->SumBagsGradient(bags, y, by_rows);
    backend_->PairwiseBags(bags, *rows, sums, pairs);
    backend_->AddPairwiseBagsGradient(bags, *rows, sums, pairs, by_rows);
    backend_->DotPairs(y, 3, dots);
    backend_->DotPairsGradient(y, 3, dots, dot_gradient);
    backend_->AddColumns(dot_gradient, 1, 4, y, 2);
    backend_->CopyColumns(sums, 0, 3, dot_gradient, 3);
  }

  Values Download() {
    std::vector<holdfast::Download> downloads;
    for (size_t i = 0; i < made_.size(); ++i) {
      const auto download = backend_->StartDownload(
          made_[i].View(shapes_[i].first, shapes_[i].second));
      EXPECT_TRUE(download.ok()) << download.status();
      downloads.push_back(*download);
    }
    Values all;
    for (const holdfast::Download& download : downloads) {
      EXPECT_TRUE(backend_->Await(download).ok());
      all.insert(all.end(), download.values.begin(), download.values.end());
    }
    return all;
  }

 private:
  Matrix Make(int64_t rows, int64_t cols) {
    made_.emplace_back();
    shapes_.emplace_back(rows, cols);
    EXPECT_TRUE(backend_->Reserve(rows * cols, &made_.back()).ok());
    return made_.back().View(rows, cols);
  }

  Backend* const backend_;
  BagsBuffer staging_;
  DeviceBuffer rows_staging_;
  std::vector<DeviceBuffer> made_;
  std::vector<std::pair<int64_t, int64_t>> shapes_;
};

// Runs some batches in turn, in the same memory, and returns how many results
// differ from the CPU's.
int CountWrong(HostRuntime::Options options) {
  int wrong = 0;
  HostDevice device(options);
  std::mt19937 random(static_cast<uint32_t>(options.seed));
  for (int i = 0; i < 6; ++i) {
    const Batch batch(/*weighted=*/i % 2 == 1, &random);
    const int64_t merged = i % 3 == 2 ? 4 : 1;
    Program on_device(device.backend.get(), batch, merged);
    const Values made = on_device.Download();
    Program on_cpu(device.cpu.get(), batch, merged);
    if (!SameBits(made, on_cpu.Download())) ++wrong;
  }
  device.backend.reset();
  EXPECT_EQ(device.misuse, absl::OkStatus());
  return wrong;
}

constexpr uint64_t kSeeds = 100;

TEST(BagsTest, EveryOrderGivesTheSameBits) {
  HostRuntime::Options options;
  for (options.seed = 0; options.seed < kSeeds; ++options.seed) {
    ASSERT_EQ(CountWrong(options), 0) << "seed " << options.seed;
  }
}

TEST(BagsTest, OperationsWaitForTheCopy) {
  HostRuntime::Options options;
  options.ignored_wait = std::make_pair(StreamId::kCompute, StreamId::kCopyIn);
  int wrong = 0;
  for (options.seed = 0; options.seed < kSeeds; ++options.seed) {
    wrong += CountWrong(options);
  }
  EXPECT_GT(wrong, 0);
}

// The copy of the next bags waits for the operations on the previous ones.
TEST(BagsTest, TheCopyWaitsForOperations) {
  HostRuntime::Options options;
  options.ignored_wait = std::make_pair(StreamId::kCopyIn, StreamId::kCompute);
  int wrong = 0;
  for (options.seed = 0; options.seed < kSeeds; ++options.seed) {
    HostDevice device(options);
    std::mt19937 random(static_cast<uint32_t>(options.seed));
    const Batch first(false, &random), second(false, &random);
    Backend* const backend = device.backend.get();
    BagsBuffer staging;
    DeviceBuffer rows_staging, memory;
    ASSERT_TRUE(backend->Reserve(Batch::kBags * Batch::kCols, &memory).ok());
    const Matrix y = memory.View(Batch::kBags, Batch::kCols);
    const auto rows = backend->Upload(first.matrix, Batch::kRows, Batch::kCols,
                                      &rows_staging);
    const auto bags = backend->UploadBags(first.Get(), &staging);
    ASSERT_TRUE(rows.ok() && bags.ok());
    backend->SumBags(*bags, *rows, y);
    ASSERT_TRUE(backend->UploadBags(second.Get(), &staging).ok());
    const auto download = backend->StartDownload(y);
    ASSERT_TRUE(download.ok() && backend->Await(*download).ok());
    Values expected(y.size());
    Values matrix = first.matrix;
    const auto view = device.cpu->UploadBags(first.Get(), &staging);
    device.cpu->SumBags(*view, {matrix.data(), Batch::kRows, Batch::kCols},
                        {expected.data(), Batch::kBags, Batch::kCols});
    const Values made(download->values.begin(), download->values.end());
    if (!SameBits(made, expected)) ++wrong;
  }
  EXPECT_GT(wrong, 0);
}

// All parts in pinned memory are copied from there, by AwaitUploads at the
// latest; if one is not, the host moves all of them.
TEST(BagsTest, PartsInPinnedMemoryAreCopiedFromThere) {
  for (const bool all : {true, false}) {
    HostRuntime::Options options;
    options.lazy = true;
    HostDevice device(options);
    Backend* const backend = device.backend.get();
    std::mt19937 random(3);
    Batch batch(/*weighted=*/true, &random);
    std::vector<HostBuffer> pinned;
    const auto pin = [&](auto* part) {
      pinned.push_back(backend->host_memory()->Allocate(part->size()));
      auto* const copy =
          reinterpret_cast<decltype(part->data())>(pinned.back().get());
      std::memcpy(copy, part->data(), part->size() * sizeof(float));
      return absl::MakeSpan(copy, part->size());
    };
    Bags bags = batch.Get();
    const auto weights = pin(&batch.weights);
    bags.rows = pin(&batch.rows);
    bags.bags = pin(&batch.bags);
    bags.weights = weights;
    bags.offsets = pin(&batch.offsets);
    bags.uses = pin(&batch.uses);
    if (all) bags.begins = pin(&batch.begins);
    BagsBuffer staging;
    DeviceBuffer rows_staging, memory;
    ASSERT_TRUE(backend->Reserve(Batch::kBags, &memory).ok());
    const Matrix y = memory.View(Batch::kBags, 1);
    const Values ones(Batch::kRows, 1);
    const auto rows = backend->Upload(ones, Batch::kRows, 1, &rows_staging);
    const auto uploaded = backend->UploadBags(bags, &staging);
    ASSERT_TRUE(rows.ok() && uploaded.ok());
    // A copy that is made later sees these.
    for (float& weight : weights) weight = 100;
    backend->SumBags(*uploaded, *rows, y);
    const auto download = backend->StartDownload(y);
    ASSERT_TRUE(download.ok() && backend->Await(*download).ok());
    float sum = 0;
    for (const float value : download->values) sum += value;
    EXPECT_EQ(sum >= 100, all);
    ASSERT_EQ(backend->AwaitUploads(), absl::OkStatus());
  }
}

TEST(BagsTest, TakesNoMemoryInTheSteadyState) {
  HostDevice device;
  std::mt19937 random(1);
  const Batch batch(false, &random);
  BagsBuffer staging;
  ASSERT_TRUE(device.backend->UploadBags(batch.Get(), &staging).ok());
  const int64_t allocations = device.runtime->allocations();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(device.backend->UploadBags(batch.Get(), &staging).ok());
  }
  EXPECT_EQ(device.runtime->allocations(), allocations);
}

// Parts that are longer than a piece of a copy, with the end of a piece between
// parts.
TEST(BagsTest, PartsOfSeveralPieces) {
  constexpr uint32_t kPiece = 1 << 20;
  for (const uint32_t num_uses : {kPiece - 3, kPiece, kPiece + 7, 2 * kPiece}) {
    SCOPED_TRACE(num_uses);
    HostDevice device;
    std::vector<uint32_t> numbers(num_uses);
    const std::vector<uint32_t> zeros(num_uses);
    for (uint32_t k = 0; k < num_uses; ++k) numbers[k] = k;
    const std::vector<uint32_t> ends = {0, num_uses};
    Values weights(num_uses, 0);
    weights.front() = 1;
    weights.back() = 2;
    Bags bags;
    bags.rows = zeros;
    bags.bags = zeros;
    bags.weights = weights;
    bags.offsets = ends;
    bags.uses = numbers;
    bags.begins = ends;
    BagsBuffer staging;
    DeviceBuffer rows_staging, memory;
    const Values row = {5};
    const auto uploaded = device.backend->UploadBags(bags, &staging);
    const auto rows = device.backend->Upload(row, 1, 1, &rows_staging);
    ASSERT_TRUE(uploaded.ok() && rows.ok());
    ASSERT_TRUE(device.backend->Reserve(2, &memory).ok());
    const Matrix y = memory.View(1, 1);
    const Matrix gradient = {y.data + 1, 1, 1};
    device.backend->SumBags(*uploaded, *rows, y);
    device.backend->SumBagsGradient(*uploaded, y, gradient);
    const auto download = device.backend->StartDownload(gradient);
    ASSERT_TRUE(download.ok() && device.backend->Await(*download).ok());
    EXPECT_EQ(download->values[0], 3 * 3 * 5);
  }
}

TEST(BagsTest, BagsWithoutUses) {
  HostDevice device;
  const std::vector<uint32_t> offsets = {0, 0, 0};
  const std::vector<uint32_t> begins = {0};
  Bags bags;
  bags.offsets = offsets;
  bags.begins = begins;
  BagsBuffer staging;
  DeviceBuffer memory;
  const auto uploaded = device.backend->UploadBags(bags, &staging);
  ASSERT_TRUE(uploaded.ok());
  EXPECT_EQ(uploaded->num_rows, 0);
  ASSERT_TRUE(device.backend->Reserve(6, &memory).ok());
  const Matrix y = memory.View(2, 3);
  device.backend->SumBags(*uploaded, {nullptr, 0, 3}, y);
  device.backend->SumBagsGradient(*uploaded, y, {nullptr, 0, 3});
  const auto download = device.backend->StartDownload(y);
  ASSERT_TRUE(download.ok() && device.backend->Await(*download).ok());
  EXPECT_EQ(Values(download->values.begin(), download->values.end()),
            Values(6, 0));
}

}  // namespace
}  // namespace holdfast
