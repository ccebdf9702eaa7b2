// SPDX-License-Identifier: Apache-2.0
#include "worker/input/batch_pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/data/example_source.h"
#include "common/job/example_order.h"
#include "common/job/ids.h"
#include "worker/input/image_augmenter.h"
#include "worker/input/testing/batch_pipeline_testing.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;

TEST(BatchPipelineTest, GivesTheBatchesOfItsSeats) {
  const PuppetSource source(50);
  const ExampleOrder order(9, 50);
  for (int threads : {1, 3}) {
    for (int prefetch : {1, 2, 5}) {
      BatchPipeline::Options options;
      options.batch_size = 7;
      options.seed = 9;
      options.seats_per_step = 4;
      options.seats = {1, 3};
      options.prefetch = prefetch;
      options.threads = threads;
      auto pipeline = Start(source, options);
      for (uint64_t step = 0; step < 20; ++step) {
        for (int64_t seat : {1, 3}) {
          EXPECT_EQ(Take(pipeline.get(), step, seat),
                    Expected(order, (step * 4 + seat) * 7, 7));
        }
      }
    }
  }
}

// The examples of a step do not depend on how many workers share it.
TEST(BatchPipelineTest, TwoWorkersSeeWhatOneSees) {
  const PuppetSource source(101);
  BatchPipeline::Options options;
  options.batch_size = 10;
  options.seats_per_step = 2;
  options.seats = {0};
  auto first = Start(source, options);
  options.seats = {1};
  auto second = Start(source, options);
  options.batch_size = 20;
  options.seats_per_step = 1;
  options.seats = {0};
  auto alone = Start(source, options);
  for (uint64_t step = 0; step < 30; ++step) {
    std::vector<int32_t> both = Take(first.get(), step, 0);
    const std::vector<int32_t> rest = Take(second.get(), step, 1);
    both.insert(both.end(), rest.begin(), rest.end());
    EXPECT_EQ(both, Take(alone.get(), step, 0));
  }
}

TEST(BatchPipelineTest, ShufflesAsItIsTold) {
  const PuppetSource source(100);
  for (const Shuffle& shuffle :
       {Shuffle{Shuffle::Kind::kBlocks, 30}, Shuffle{Shuffle::Kind::kNone}}) {
    BatchPipeline::Options options;
    options.batch_size = 20;
    options.seed = 9;
    options.shuffle = shuffle;
    auto pipeline = Start(source, options);
    const ExampleOrder order(9, 100, shuffle);
    for (uint64_t step = 0; step < 12; ++step) {
      EXPECT_EQ(Take(pipeline.get(), step, 0), Expected(order, step * 20, 20));
    }
  }
}

TEST(BatchPipelineTest, BatchMayBeLargerThanTheData) {
  const PuppetSource source(3);
  BatchPipeline::Options options;
  options.batch_size = 10;
  auto pipeline = Start(source, options);
  const ExampleOrder order(0, 3);
  EXPECT_EQ(Take(pipeline.get(), 0, 0), Expected(order, 0, 10));
  EXPECT_EQ(Take(pipeline.get(), 1, 0), Expected(order, 10, 10));
}

// 10 examples in batches of 4, two to a step: an epoch is two steps, in seats
// of 4, 4, 2 and 0.
TEST(BatchPipelineTest, ShortAndEmptySeats) {
  const PuppetSource source(10);
  const ExampleOrder order(3, 10);
  for (const std::vector<int64_t>& seats :
       {std::vector<int64_t>{0, 1}, {0}, {1}}) {
    BatchPipeline::Options options;
    options.batch_size = 4;
    options.short_last_batch = true;
    options.seed = 3;
    options.seats_per_step = 2;
    options.seats = seats;
    options.prefetch = 2;
    options.threads = 2;
    auto pipeline = Start(source, options);
    for (uint64_t step = 0; step < 10; ++step) {
      for (const int64_t seat : seats) {
        const int64_t place = step % 2 * 2 + seat;
        const int64_t size = std::vector<int64_t>{4, 4, 2, 0}[place];
        EXPECT_EQ(Take(pipeline.get(), step, seat),
                  Expected(order, step / 2 * 10 + place * 4, size));
      }
    }
  }
}

TEST(BatchPipelineTest, TellsThePlacesOfTheExamples) {
  const PuppetSource source(10);
  BatchPipeline::Options options;
  options.batch_size = 4;
  options.seats_per_step = 2;
  options.seats = {1};
  auto pipeline = Start(source, options);
  for (const int64_t begin : {4, 12, 20}) {
    std::vector<int64_t> expected(4);
    std::iota(expected.begin(), expected.end(), begin);
    const auto batch =
        pipeline->Next(GlobalStep(begin / 8), 1, absl::InfiniteFuture());
    ASSERT_TRUE(batch.ok()) << batch.status();
    EXPECT_EQ(batch->positions, absl::MakeConstSpan(expected));
  }
  options.by_ticket = true;
  options.short_last_batch = true;
  pipeline = Start(source, options);
  // The last of the second epoch.
  const auto batch = pipeline->NextTicket(5, absl::InfiniteFuture());
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_EQ(batch->positions,
            absl::MakeConstSpan(std::vector<int64_t>{18, 19}));
}

TEST(BatchPipelineTest, MakesNoMoreThanItMay) {
  const PuppetSource source(1000);
  BatchPipeline::Options options;
  options.batch_size = 10;
  options.prefetch = 3;
  options.threads = 2;
  auto pipeline = Start(source, options);
  source.AwaitReads(4 * 10);
  Take(pipeline.get(), 0, 0);
  // The batch taken keeps its memory.
  EXPECT_EQ(source.reads(), 4 * 10);
  Take(pipeline.get(), 1, 0);
  source.AwaitReads(5 * 10);
  pipeline.reset();
  EXPECT_EQ(source.reads(), 5 * 10);
}

TEST(BatchPipelineTest, MemoryStaysUntilTheNextCall) {
  const PuppetSource source(1000);
  BatchPipeline::Options options;
  options.batch_size = 4;
  options.prefetch = 1;
  auto pipeline = Start(source, options);
  const auto batch = pipeline->Next(GlobalStep(0), 0, absl::InfiniteFuture());
  ASSERT_TRUE(batch.ok());
  // The next has been made meanwhile, in other memory.
  source.AwaitReads(2 * 4);
  const ExampleOrder order(0, 1000);
  EXPECT_EQ(batch->labels, absl::MakeConstSpan(Expected(order, 0, 4)));
}

TEST(BatchPipelineTest, LeavesOutWhatIsNotWanted) {
  const PuppetSource source(1000);
  BatchPipeline::Options options;
  options.batch_size = 2;
  options.prefetch = 3;
  options.threads = 2;
  auto pipeline = Start(source, options);
  const ExampleOrder order(0, 1000);
  EXPECT_EQ(Take(pipeline.get(), 0, 0), Expected(order, 0, 2));
  // Within what is made ahead, and far beyond it.
  EXPECT_EQ(Take(pipeline.get(), 2, 0), Expected(order, 4, 2));
  EXPECT_EQ(Take(pipeline.get(), 1000000, 0), Expected(order, 2000000, 2));
  EXPECT_EQ(Take(pipeline.get(), 1000001, 0), Expected(order, 2000002, 2));
  pipeline.reset();
  // No batches between were made, except for those that fit in memory before
  // and after each of the jumps.
  EXPECT_LE(source.reads(), 3 * 4 * 2 + 2 * 2);
}

TEST(BatchPipelineTest, LeavesOutWhatIsInTheMaking) {
  PuppetSource source(1000);
  source.Close();
  BatchPipeline::Options options;
  options.prefetch = 2;
  options.threads = 2;
  auto pipeline = Start(source, options);
  // Both threads are in batches that are skipped now.
  source.AwaitHeld(2);
  EXPECT_EQ(
      pipeline->Next(GlobalStep(7), 0, absl::InfinitePast()).status().code(),
      absl::StatusCode::kDeadlineExceeded);
  source.Open();
  EXPECT_EQ(Take(pipeline.get(), 7, 0), Expected(ExampleOrder(0, 1000), 7, 1));
  EXPECT_EQ(Take(pipeline.get(), 8, 0), Expected(ExampleOrder(0, 1000), 8, 1));
}

TEST(BatchPipelineTest, HandsOutInOrderAndOnce) {
  const PuppetSource source(10);
  BatchPipeline::Options options;
  options.seats_per_step = 3;
  options.seats = {0, 2};
  auto pipeline = Start(source, options);
  const auto code = [&](uint64_t step, int64_t seat) {
    return pipeline->Next(GlobalStep(step), seat, absl::InfiniteFuture())
        .status()
        .code();
  };
  EXPECT_EQ(code(5, 1), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(6, 2), absl::StatusCode::kOk);
  EXPECT_EQ(code(6, 0), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(
      pipeline->Next(GlobalStep(6), 2, absl::InfiniteFuture())
          .status()
          .message(),
      HasSubstr("the batch of seat 2 in step 6 was asked for; batches are "
                "handed out once and in order, the next is that of seat 0 in "
                "step 7"));
  EXPECT_EQ(code(7, 0), absl::StatusCode::kOk);
}

TEST(BatchPipelineTest, RestartGoesToAnyStep) {
  const PuppetSource source(1000);
  const ExampleOrder order(0, 1000);
  for (const int threads : {1, 2}) {
    BatchPipeline::Options options;
    options.batch_size = 2;
    options.seats_per_step = 4;
    options.seats = {1, 3};
    options.prefetch = 3;
    options.threads = threads;
    auto pipeline = Start(source, options);
    // Forward, back to batches that were handed out, and to the current one.
    for (const uint64_t first : {1000000, 3, 0, 4, 4}) {
      pipeline->Restart();
      for (const uint64_t step : {first, first + 1, first + 5}) {
        for (const int64_t seat : {1, 3}) {
          EXPECT_EQ(Take(pipeline.get(), step, seat),
                    Expected(order, (step * 4 + seat) * 2, 2));
        }
      }
    }
  }
}

// There is room for two batches of one example: 0 and 1, then 1000000 and
// 1000001.
TEST(BatchPipelineTest, RestartMakesNothingBefore) {
  const PuppetSource source(2000000);
  const ExampleOrder order(0, 2000000);
  BatchPipeline::Options options;
  options.prefetch = 1;
  auto pipeline = Start(source, options);
  source.AwaitReads(2);
  EXPECT_EQ(source.last_read(), order.At(1));
  pipeline->Restart();
  EXPECT_EQ(Take(pipeline.get(), 1000000, 0), Expected(order, 1000000, 1));
  source.AwaitReads(4);
  EXPECT_EQ(source.last_read(), order.At(1000001));
  // After going back, it makes batches ahead as before.
  pipeline->Restart();
  EXPECT_EQ(Take(pipeline.get(), 7, 0), Expected(order, 7, 1));
  source.AwaitReads(6);
  EXPECT_EQ(source.last_read(), order.At(8));
}

TEST(BatchPipelineTest, RestartLeavesWhatIsInTheMaking) {
  PuppetSource source(1000);
  source.Close();
  BatchPipeline::Options options;
  options.prefetch = 2;
  options.threads = 2;
  auto pipeline = Start(source, options);
  source.AwaitHeld(2);
  pipeline->Restart();
  source.Open();
  for (const int64_t step : {0, 1, 2}) {
    EXPECT_EQ(Take(pipeline.get(), step, 0),
              Expected(ExampleOrder(0, 1000), step, 1));
  }
}

TEST(BatchPipelineTest, DeadlineNamesTheBatch) {
  PuppetSource source(10);
  source.Close();
  auto pipeline = Start(source, {});
  const absl::Status status =
      pipeline->Next(GlobalStep(0), 0, absl::InfinitePast()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(status.message(), HasSubstr("the batch of seat 0 in step 0"));
  source.Open();
  EXPECT_EQ(Take(pipeline.get(), 0, 0), Expected(ExampleOrder(0, 10), 0, 1));
}

TEST(BatchPipelineTest, PassesErrorsOn) {
  PuppetSource source(100);
  const ExampleOrder order(0, 100);
  // In the batch of step 3.
  source.Fail(order.At(3 * 5 + 2));
  BatchPipeline::Options options;
  options.batch_size = 5;
  options.threads = 2;
  auto pipeline = Start(source, options);
  for (uint64_t step = 0; step < 3; ++step) Take(pipeline.get(), step, 0);
  for (int repeat = 0; repeat < 2; ++repeat) {
    EXPECT_EQ(pipeline->Next(GlobalStep(3), 0, absl::InfiniteFuture()).status(),
              absl::DataLossError("cannot make the batch of seat 0 in step 3: "
                                  "bad sector"));
  }
  EXPECT_EQ(Take(pipeline.get(), 4, 0), Expected(order, 20, 5));
}

TEST(BatchPipelineTest, SaysWhenTheStreamIsAtItsEnd) {
  const PuppetSource source(10);
  BatchPipeline::Options options;
  options.batch_size = 1000;
  auto pipeline = Start(source, options);
  EXPECT_EQ(pipeline
                ->Next(GlobalStep(std::numeric_limits<int64_t>::max() / 1000),
                       0, absl::InfiniteFuture())
                .status()
                .code(),
            absl::StatusCode::kOutOfRange);
}

TEST(BatchPipelineTest, StopEndsAWait) {
  PuppetSource source(10);
  source.Close();
  auto pipeline = Start(source, {});
  std::thread stopper([&] {
    source.AwaitHeld(1);
    pipeline->Stop();
  });
  EXPECT_EQ(
      pipeline->Next(GlobalStep(0), 0, absl::InfiniteFuture()).status().code(),
      absl::StatusCode::kCancelled);
  stopper.join();
  source.Open();
  EXPECT_EQ(
      pipeline->Next(GlobalStep(0), 0, absl::InfiniteFuture()).status().code(),
      absl::StatusCode::kCancelled);
}

TEST(BatchPipelineTest, EndsWhileBatchesAreMade) {
  for (int i = 0; i < 50; ++i) {
    const PuppetSource source(10);
    BatchPipeline::Options options;
    options.threads = 3;
    options.prefetch = 3;
    auto pipeline = Start(source, options);
    if (i % 2 == 0) Take(pipeline.get(), 0, 0);
  }
}

// Example i is an image of 2 x 3 pixels, 10 i to 10 i + 5, with the label i.
class Images final : public ExampleSource {
 public:
  int64_t num_examples() const override { return 20; }
  const ExampleSpec& spec() const override { return spec_; }
  absl::Status Read(int64_t index, const ExampleMemory& to) const override {
    std::iota(to.input.begin(), to.input.end(), 10.0f * index);
    *to.label = index;
    return absl::OkStatus();
  }

 private:
  const ExampleSpec spec_ = {{2, 3}};
};

// The change of an image follows from its position in the stream alone.
TEST(BatchPipelineTest, AugmentsTheSameInEveryBatchAndOnEveryThread) {
  const Images source;
  const auto augmenter = ImageAugmenter::Create(
      {2, 3}, {.seed = 4, .max_shift = 1, .horizontal_flip = true, .fill = -1});
  ASSERT_TRUE(augmenter.ok());
  const ExampleOrder order(4, 20);
  // 3 epochs, in batches of 12 and of 4.
  for (const int64_t seats : {1, 3}) {
    for (const int threads : {1, 4}) {
      BatchPipeline::Options options;
      options.batch_size = 12 / seats;
      options.seed = 4;
      options.prefetch = 4;
      options.threads = threads;
      options.augmenter = &*augmenter;
      options.seats_per_step = seats;
      options.seats.resize(seats);
      std::iota(options.seats.begin(), options.seats.end(), 0);
      const auto pipeline = Start(source, options);
      int64_t position = 0;
      for (int64_t index = 0; index < 5 * seats; ++index) {
        const auto batch = pipeline->Next(
            GlobalStep(index / seats), index % seats, absl::InfiniteFuture());
        ASSERT_TRUE(batch.ok()) << batch.status();
        for (int64_t i = 0; i < batch->size(); ++i, ++position) {
          std::vector<float> image(6), expected(6);
          int32_t label = 0;
          ASSERT_TRUE(
              source.Read(order.At(position), {absl::MakeSpan(image), &label})
                  .ok());
          augmenter->Apply(augmenter->ChangeAt(position), image,
                           absl::MakeSpan(expected));
          EXPECT_EQ(batch->inputs.subspan(6 * i, 6), expected);
          EXPECT_EQ(batch->labels[i], label);
        }
      }
      EXPECT_EQ(position, 60);
    }
  }
}

// Example i is (i) with the targets (2 i, 3 i) and the weight i / 2.
class Weighted final : public ExampleSource {
 public:
  int64_t num_examples() const override { return 10; }
  const ExampleSpec& spec() const override { return spec_; }
  absl::Status Read(int64_t index, const ExampleMemory& to) const override {
    EXPECT_EQ(to.label, nullptr);
    to.input[0] = index;
    to.targets[0] = 2 * index;
    to.targets[1] = 3 * index;
    *to.weight = index / 2.0f;
    return absl::OkStatus();
  }

 private:
  const ExampleSpec spec_ = {{1}, std::nullopt, 2, true};
};

TEST(BatchPipelineTest, BringsTargetsAndWeights) {
  const Weighted source;
  const auto pipeline = Start(source, {.batch_size = 4, .threads = 2});
  for (int64_t step = 0; step < 5; ++step) {
    const auto batch =
        pipeline->Next(GlobalStep(step), 0, absl::InfiniteFuture());
    ASSERT_TRUE(batch.ok()) << batch.status();
    ASSERT_EQ(batch->size(), 4);
    EXPECT_TRUE(batch->labels.empty());
    EXPECT_EQ(batch->num_targets, 2);
    for (int i = 0; i < 4; ++i) {
      const float value = batch->inputs[i];
      EXPECT_EQ(batch->targets[2 * i], 2 * value);
      EXPECT_EQ(batch->targets[2 * i + 1], 3 * value);
      EXPECT_EQ(batch->weights[i], value / 2);
    }
  }
}

TEST(BatchPipelineTest, TellsTheNextBatchWhereItIsMade) {
  PuppetSource source(50);
  const ExampleOrder order(9, 50);
  BatchPipeline::Options options;
  options.batch_size = 4;
  options.seed = 9;
  options.prefetch = 2;
  const auto pipeline = Start(source, options);
  source.AwaitReads(3 * 4);
  for (uint64_t step = 0; step < 4; ++step) {
    const auto batch =
        pipeline->Next(GlobalStep(step), 0, absl::InfiniteFuture());
    ASSERT_TRUE(batch.ok()) << batch.status();
    // A batch that is still being made is not a next batch yet.
    EXPECT_TRUE(step > 0 || !batch->next_positions.empty());
    if (batch->next_positions.empty()) {
      EXPECT_TRUE(batch->next_inputs.empty());
      continue;
    }
    EXPECT_EQ(batch->next_positions.front(), batch->positions.back() + 1);
    const std::vector<int32_t> expected = Expected(order, 4 * step + 4, 4);
    EXPECT_EQ(std::vector<float>(expected.begin(), expected.end()),
              batch->next_inputs);
  }
}

TEST(BatchPipelineTest, TellsNoNextBatchThatFailed) {
  PuppetSource source(50);
  const ExampleOrder order(9, 50);
  source.Fail(order.At(5));
  BatchPipeline::Options options;
  options.batch_size = 4;
  options.seed = 9;
  options.prefetch = 2;
  const auto pipeline = Start(source, options);
  // Making batch 1 fails at its second example.
  source.AwaitReads(4 + 2 + 4);
  const auto batch = pipeline->Next(GlobalStep(0), 0, absl::InfiniteFuture());
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_TRUE(batch->next_positions.empty());
}

TEST(BatchPipelineTest, TakesTheMemoryThatItIsGiven) {
  const PuppetSource source(50);
  std::vector<const float*> given;
  int returned = 0;
  BatchPipeline::Options options;
  options.batch_size = 4;
  options.prefetch = 2;
  options.allocate = [&](int64_t size) -> absl::StatusOr<InputMemory> {
    EXPECT_EQ(size, 4);
    given.push_back(new float[size]);
    return InputMemory(const_cast<float*>(given.back()), [&](float* memory) {
      ++returned;
      delete[] memory;
    });
  };
  {
    const auto pipeline = Start(source, options);
    ASSERT_EQ(given.size(), 3u);
    for (uint64_t step = 0; step < 5; ++step) {
      const auto batch =
          pipeline->Next(GlobalStep(step), 0, absl::InfiniteFuture());
      ASSERT_TRUE(batch.ok());
      EXPECT_THAT(given, ::testing::Contains(batch->inputs.data()));
    }
  }
  EXPECT_EQ(returned, 3);
  options.allocate = [](int64_t) -> absl::StatusOr<InputMemory> {
    return absl::ResourceExhaustedError("nothing to pin");
  };
  const absl::Status status = BatchPipeline::Start(&source, options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("prefetch: nothing to pin"));
}

TEST(BatchPipelineTest, RefusesBadOptions) {
  const PuppetSource source(10);
  const auto code = [&](auto&& change) {
    BatchPipeline::Options options;
    options.seats_per_step = 4;
    change(options);
    return BatchPipeline::Start(&source, options).status().code();
  };
  const auto invalid = absl::StatusCode::kInvalidArgument;
  using Options = BatchPipeline::Options;
  EXPECT_EQ(code([](Options& o) {}), absl::StatusCode::kOk);
  EXPECT_EQ(code([](Options& o) { o.batch_size = 0; }), invalid);
  EXPECT_EQ(code([](Options& o) { o.seats_per_step = 0; }), invalid);
  EXPECT_EQ(code([](Options& o) { o.prefetch = 0; }), invalid);
  EXPECT_EQ(code([](Options& o) { o.threads = 0; }), invalid);
  EXPECT_EQ(code([](Options& o) { o.seats = {}; }), invalid);
  EXPECT_EQ(code([](Options& o) { o.seats = {-1}; }), invalid);
  EXPECT_EQ(code([](Options& o) { o.seats = {4}; }), invalid);
  EXPECT_EQ(code([](Options& o) { o.seats = {2, 1}; }), invalid);
  EXPECT_EQ(code([](Options& o) { o.seats = {1, 1}; }), invalid);
  // By ticket there are no seats.
  EXPECT_EQ(code([](Options& o) {
              o.by_ticket = true;
              o.seats_per_step = 0;
              o.seats = {};
            }),
            absl::StatusCode::kOk);
  EXPECT_EQ(code([](Options& o) {
              o.by_ticket = true;
              o.batch_size = 0;
            }),
            invalid);
  EXPECT_EQ(code([](Options& o) { o.batch_size = int64_t{1} << 62; }),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace holdfast
