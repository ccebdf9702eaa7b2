// SPDX-License-Identifier: Apache-2.0
#include "worker/input/sequential_batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/status/status.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;

// Example i is (i, i + 0.5) with the label 10 i.
class Numbers final : public ExampleSource {
 public:
  explicit Numbers(int64_t num_examples) : num_examples_(num_examples) {}
  int64_t num_examples() const override { return num_examples_; }
  const ExampleSpec& spec() const override { return spec_; }
  absl::Status Read(int64_t index, const ExampleMemory& to) const override {
    if (index == bad_index) return absl::DataLossError("bad");
    to.input[0] = index;
    to.input[1] = index + 0.5f;
    *to.label = 10 * index;
    return absl::OkStatus();
  }

  int64_t bad_index = -1;

 private:
  int64_t num_examples_;
  const ExampleSpec spec_ = {{1, 2}};
};

TEST(SequentialBatchesTest, GivesEveryExampleOnce) {
  const Numbers source(5);
  SequentialBatches batches(&source, 2);
  absl::StatusOr<Batch> batch = batches.Next();
  ASSERT_TRUE(batch.ok());
  EXPECT_THAT(batch->inputs, ElementsAre(0, 0.5f, 1, 1.5f));
  EXPECT_THAT(batch->labels, ElementsAre(0, 10));
  batch = batches.Next();
  ASSERT_TRUE(batch.ok());
  EXPECT_THAT(batch->labels, ElementsAre(20, 30));
  batch = batches.Next();
  ASSERT_TRUE(batch.ok());
  EXPECT_THAT(batch->inputs, ElementsAre(4, 4.5f));
  EXPECT_THAT(batch->labels, ElementsAre(40));
  for (int i = 0; i < 2; ++i) {
    batch = batches.Next();
    ASSERT_TRUE(batch.ok());
    EXPECT_EQ(batch->size(), 0);
  }
}

TEST(SequentialBatchesTest, BatchLargerThanTheData) {
  const Numbers source(3);
  SequentialBatches batches(&source, int64_t{1} << 60);
  EXPECT_EQ(batches.Next()->size(), 3);
  EXPECT_EQ(batches.Next()->size(), 0);
}

TEST(SequentialBatchesTest, PassesErrorsOn) {
  Numbers source(3);
  source.bad_index = 2;
  SequentialBatches batches(&source, 2);
  EXPECT_TRUE(batches.Next().ok());
  EXPECT_EQ(batches.Next().status(), absl::DataLossError("bad"));
  EXPECT_EQ(batches.Next().status(), absl::DataLossError("bad"));
}

}  // namespace
}  // namespace holdfast
