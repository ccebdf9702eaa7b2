#include "worker/input/batch_pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <thread>

namespace holdfast {
namespace {

using ::testing::HasSubstr;

// Example i is (i) with the label i. Puppet strings: reads may be held until
// they are let go, and may fail.
class Puppet final : public ExampleSource {
 public:
  explicit Puppet(int64_t num_examples) : num_examples_(num_examples) {}

  int64_t num_examples() const override { return num_examples_; }
  const std::vector<int64_t>& example_shape() const override { return shape_; }
  absl::Status Read(int64_t index, absl::Span<float> input,
                    int32_t* label) const override {
    absl::MutexLock lock(&mutex_);
    ++waiting_;
    mutex_.Await(absl::Condition(&open_));
    --waiting_;
    ++reads_;
    if (index == bad_index_) return absl::DataLossError("bad sector");
    input[0] = index;
    *label = index;
    return absl::OkStatus();
  }

  // Holds all reads from now on.
  void Close() {
    absl::MutexLock lock(&mutex_);
    open_ = false;
  }
  void Open() {
    absl::MutexLock lock(&mutex_);
    open_ = true;
  }
  void Fail(int64_t index) {
    absl::MutexLock lock(&mutex_);
    bad_index_ = index;
  }
  void AwaitReads(int64_t reads) const {
    absl::MutexLock lock(&mutex_);
    const auto done = [this, reads] { return reads_ >= reads; };
    mutex_.Await(absl::Condition(&done));
  }
  // Waits until that many threads are held in Read().
  void AwaitHeld(int threads) const {
    absl::MutexLock lock(&mutex_);
    const auto held = [this, threads] { return waiting_ == threads; };
    mutex_.Await(absl::Condition(&held));
  }
  int64_t reads() const {
    absl::MutexLock lock(&mutex_);
    return reads_;
  }

 private:
  const int64_t num_examples_;
  const std::vector<int64_t> shape_ = {1};
  mutable absl::Mutex mutex_;
  bool open_ = true;
  int64_t bad_index_ = -1;
  mutable int64_t reads_ = 0;
  mutable int waiting_ = 0;
};

std::unique_ptr<BatchPipeline> Start(const ExampleSource& source,
                                     BatchPipeline::Options options) {
  auto pipeline = BatchPipeline::Start(&source, std::move(options));
  EXPECT_TRUE(pipeline.ok()) << pipeline.status();
  return *std::move(pipeline);
}

// The labels of the batch, which are the examples' indices.
std::vector<int32_t> Take(BatchPipeline* pipeline, uint64_t step,
                          int64_t seat) {
  const auto batch =
      pipeline->Next(GlobalStep(step), seat, absl::InfiniteFuture());
  EXPECT_TRUE(batch.ok()) << batch.status();
  if (!batch.ok()) return {};
  EXPECT_EQ(std::vector<float>(batch->labels.begin(), batch->labels.end()),
            batch->inputs);
  return {batch->labels.begin(), batch->labels.end()};
}

// The examples at [begin, begin + size) of the stream.
std::vector<int32_t> Expected(const ExampleOrder& order, int64_t begin,
                              int64_t size) {
  std::vector<int32_t> examples;
  for (int64_t i = 0; i < size; ++i) examples.push_back(order.At(begin + i));
  return examples;
}

TEST(BatchPipelineTest, GivesTheBatchesOfItsSeats) {
  const Puppet source(50);
  const ExampleOrder order(9, 50);
  for (int threads : {1, 3}) {
    for (int prefetch : {1, 2, 5}) {
      BatchPipeline::Options options;
      options.batch_size = 7;
      options.seed = 9;
      options.first_step = GlobalStep(2);
      options.seats_per_step = 4;
      options.seats = {1, 3};
      options.prefetch = prefetch;
      options.threads = threads;
      auto pipeline = Start(source, options);
      for (uint64_t step = 2; step < 20; ++step) {
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
  const Puppet source(101);
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

TEST(BatchPipelineTest, BatchMayBeLargerThanTheData) {
  const Puppet source(3);
  BatchPipeline::Options options;
  options.batch_size = 10;
  auto pipeline = Start(source, options);
  const ExampleOrder order(0, 3);
  EXPECT_EQ(Take(pipeline.get(), 0, 0), Expected(order, 0, 10));
  EXPECT_EQ(Take(pipeline.get(), 1, 0), Expected(order, 10, 10));
}

TEST(BatchPipelineTest, MakesNoMoreThanItMay) {
  const Puppet source(1000);
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
  const Puppet source(1000);
  BatchPipeline::Options options;
  options.batch_size = 4;
  options.prefetch = 1;
  auto pipeline = Start(source, options);
  const auto batch = pipeline->Next(GlobalStep(0), 0, absl::InfiniteFuture());
  ASSERT_TRUE(batch.ok());
  // The next has been made meanwhile, elsewhere.
  source.AwaitReads(2 * 4);
  const ExampleOrder order(0, 1000);
  EXPECT_EQ(batch->labels, absl::MakeConstSpan(Expected(order, 0, 4)));
}

TEST(BatchPipelineTest, LeavesOutWhatIsNotWanted) {
  const Puppet source(1000);
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
  // Nothing between was made: at most what fits in memory before and after each
  // of the jumps.
  EXPECT_LE(source.reads(), 3 * 4 * 2 + 2 * 2);
}

TEST(BatchPipelineTest, LeavesOutWhatIsInTheMaking) {
  Puppet source(1000);
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
  const Puppet source(10);
  BatchPipeline::Options options;
  options.first_step = GlobalStep(5);
  options.seats_per_step = 3;
  options.seats = {0, 2};
  auto pipeline = Start(source, options);
  const auto code = [&](uint64_t step, int64_t seat) {
    return pipeline->Next(GlobalStep(step), seat, absl::InfiniteFuture())
        .status()
        .code();
  };
  EXPECT_EQ(code(4, 0), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(code(5, 1), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(6, 2), absl::StatusCode::kOk);
  EXPECT_EQ(code(6, 0), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(
      pipeline->Next(GlobalStep(6), 2, absl::InfiniteFuture())
          .status()
          .message(),
      HasSubstr("the batch of seat 2 in step 6 was asked for; batches are "
                "handed out in order and once, the next is that of seat 0 in "
                "step 7"));
  EXPECT_EQ(code(7, 0), absl::StatusCode::kOk);
}

TEST(BatchPipelineTest, DeadlineNamesTheBatch) {
  Puppet source(10);
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
  Puppet source(100);
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
  const Puppet source(10);
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
  Puppet source(10);
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
    const Puppet source(10);
    BatchPipeline::Options options;
    options.threads = 3;
    options.prefetch = 3;
    auto pipeline = Start(source, options);
    if (i % 2 == 0) Take(pipeline.get(), 0, 0);
  }
}

TEST(BatchPipelineTest, RefusesBadOptions) {
  const Puppet source(10);
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
  EXPECT_EQ(code([](Options& o) { o.batch_size = int64_t{1} << 62; }),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace holdfast
