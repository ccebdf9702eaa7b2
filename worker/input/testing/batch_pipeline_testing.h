// SPDX-License-Identifier: Apache-2.0

// For tests of BatchPipeline: a source that tests control, and the batches that
// should come of it.
#ifndef HOLDFAST_WORKER_INPUT_TESTING_BATCH_PIPELINE_TESTING_H_
#define HOLDFAST_WORKER_INPUT_TESTING_BATCH_PIPELINE_TESTING_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/data/example_source.h"
#include "common/job/example_order.h"
#include "common/job/ids.h"
#include "worker/input/batch.h"
#include "worker/input/batch_pipeline.h"

namespace holdfast {

// Example i is (i) with the label i. Tests can hold reads, release them, and
// make them fail.
class PuppetSource final : public ExampleSource {
 public:
  explicit PuppetSource(int64_t num_examples) : num_examples_(num_examples) {}

  int64_t num_examples() const override { return num_examples_; }
  const ExampleSpec& spec() const override { return spec_; }
  absl::Status Read(int64_t index, const ExampleMemory& to) const override {
    absl::MutexLock lock(&mutex_);
    ++waiting_;
    mutex_.Await(absl::Condition(&open_));
    --waiting_;
    ++reads_;
    last_read_ = index;
    if (index == bad_index_) return absl::DataLossError("bad sector");
    to.input[0] = index;
    *to.label = index;
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
  int64_t last_read() const {
    absl::MutexLock lock(&mutex_);
    return last_read_;
  }

 private:
  const int64_t num_examples_;
  const ExampleSpec spec_ = {{1}};
  mutable absl::Mutex mutex_;
  bool open_ = true;
  int64_t bad_index_ = -1;
  mutable int64_t reads_ = 0;
  mutable int64_t last_read_ = -1;
  mutable int waiting_ = 0;
};

inline std::unique_ptr<BatchPipeline> Start(const ExampleSource& source,
                                            BatchPipeline::Options options) {
  auto pipeline = BatchPipeline::Start(&source, std::move(options));
  EXPECT_TRUE(pipeline.ok()) << pipeline.status();
  return *std::move(pipeline);
}

// The labels of the batch, which are the examples' indices.
inline std::vector<int32_t> LabelsOf(const absl::StatusOr<Batch>& batch) {
  EXPECT_TRUE(batch.ok()) << batch.status();
  if (!batch.ok()) return {};
  EXPECT_EQ(std::vector<float>(batch->labels.begin(), batch->labels.end()),
            batch->inputs);
  EXPECT_EQ(batch->positions.size(), batch->labels.size());
  return {batch->labels.begin(), batch->labels.end()};
}

inline std::vector<int32_t> Take(BatchPipeline* pipeline, uint64_t step,
                                 int64_t seat) {
  return LabelsOf(
      pipeline->Next(GlobalStep(step), seat, absl::InfiniteFuture()));
}

inline std::vector<int32_t> TakeTicket(BatchPipeline* pipeline,
                                       uint64_t ticket) {
  return LabelsOf(pipeline->NextTicket(ticket, absl::InfiniteFuture()));
}

// The examples at [begin, begin + size) of the stream.
inline std::vector<int32_t> Expected(const ExampleOrder& order, int64_t begin,
                                     int64_t size) {
  std::vector<int32_t> examples;
  for (int64_t i = 0; i < size; ++i) examples.push_back(order.At(begin + i));
  return examples;
}

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_INPUT_TESTING_BATCH_PIPELINE_TESTING_H_
