// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/checkpoint_chain.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

class CheckpointChainTest : public testing::Test {
 protected:
  CheckpointChainTest() { declaration_.add_tables()->set_name("t"); }

  // Takes the next checkpoint. Returns the steps of the checkpoints that it
  // needs, or "all" if it has all rows itself.
  // `again`: for the same step.
  std::string Take(uint64_t bytes, bool finished = false, bool again = false) {
    proto::Manifest manifest;
    manifest.mutable_name()->set_generation(generation_);
    manifest.mutable_name()->set_step(step_ + !again);
    step_ = manifest.name().step();
    *manifest.mutable_declaration() = declaration_;
    manifest.set_finished(finished);
    manifest.add_files()->set_size(bytes / 2);
    manifest.add_files()->set_size(bytes - bytes / 2);
    const bool changes = chain_.AddTo(&manifest);
    EXPECT_EQ(changes, !manifest.chain().empty());
    chain_.OnDurable(manifest);
    previous_ = manifest.previous().step();
    if (!changes) return "all";
    std::vector<uint64_t> steps;
    for (const proto::ChainLink& link : manifest.chain()) {
      EXPECT_EQ(link.checkpoint().generation(), generation_);
      steps.push_back(link.checkpoint().step());
    }
    return absl::StrJoin(steps, " ");
  }

  proto::Declaration declaration_;
  CheckpointChain chain_;
  uint64_t generation_ = 1;
  uint64_t step_ = 0;
  uint64_t previous_ = 0;
};

TEST_F(CheckpointChainTest, NeedsAllFromTheLastThatHadAllRows) {
  EXPECT_EQ(Take(1000), "all");
  EXPECT_EQ(previous_, 0u);
  EXPECT_EQ(Take(10), "1");
  EXPECT_EQ(Take(10), "1 2");
  EXPECT_EQ(previous_, 2u);
}

TEST_F(CheckpointChainTest, NoMoreThanSoMany) {
  Take(1000);
  for (int i = 0; i < 16; ++i) EXPECT_NE(Take(1), "all");
  EXPECT_EQ(Take(1000), "all");
  EXPECT_EQ(previous_, 17u) << "what was removed is told all the same";

  declaration_.mutable_checkpoints()->set_max_deltas(1);
  EXPECT_EQ(Take(1), "18");
  EXPECT_EQ(Take(1000), "all");
  declaration_.mutable_checkpoints()->set_max_deltas(0);
  EXPECT_EQ(Take(1000), "all");
  EXPECT_EQ(previous_, 0u);
}

TEST_F(CheckpointChainTest, NotWhenTheChangesAreHalfAsMuch) {
  Take(1000);
  EXPECT_EQ(Take(300), "1");
  EXPECT_EQ(Take(200), "1 2");
  EXPECT_EQ(Take(1), "1 2 3");
  EXPECT_EQ(Take(1000), "all");
  EXPECT_EQ(Take(1), "5");
}

TEST_F(CheckpointChainTest, TheLastOfAllHasAllRows) {
  Take(1000);
  EXPECT_EQ(Take(1000, /*finished=*/true), "all");
  EXPECT_EQ(previous_, 1u);
}

// Its files replace those of the last checkpoint, and then have the same bytes.
TEST_F(CheckpointChainTest, OneOfTheSameNameIsAsTheLast) {
  Take(1000);
  EXPECT_EQ(Take(1000, /*finished=*/true, /*again=*/true), "all");
  EXPECT_EQ(previous_, 0u);
  Take(10);
  Take(10);
  EXPECT_EQ(Take(10, /*finished=*/true, /*again=*/true), "1 2");
  EXPECT_EQ(previous_, 2u);
  EXPECT_EQ(Take(10), "1 2 3");
}

TEST_F(CheckpointChainTest, OneOfTheSameStepAndALaterGenerationHasAllRows) {
  Take(1000);
  Take(10);
  ++generation_;
  EXPECT_EQ(Take(1000, /*finished=*/false, /*again=*/true), "all");
  EXPECT_EQ(previous_, 0u);
  EXPECT_EQ(Take(10), "2");
}

TEST_F(CheckpointChainTest, AJobWithoutTablesHasNone) {
  declaration_.clear_tables();
  Take(1000);
  EXPECT_EQ(Take(1000), "all");
  EXPECT_EQ(previous_, 0u);
}

TEST_F(CheckpointChainTest, WithoutADurableOneThereIsNone) {
  Take(1000);
  chain_.Clear();
  EXPECT_EQ(Take(1000), "all");
}

}  // namespace
}  // namespace holdfast
