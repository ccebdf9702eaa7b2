#include "client/gradients.h"

#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "client/generation_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::client {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

class GradientsTest : public GenerationTest {
 protected:
  const std::vector<float> a_ = {1, 2};
  const std::vector<float> b_ = {3, 4, 5, 6};
  const std::shared_ptr<GenerationState> generation_ =
      MakeGeneration(/*num_ps=*/1, /*part_bytes=*/1 << 20);
  Gradients gradients_{PushSequence(1), generation_->placement.layout,
                       &generation_->encoder};
};

TEST_F(GradientsTest, WhatDoesNotFitIsRefused) {
  EXPECT_EQ(gradients_.Check(2, a_),
            absl::InvalidArgumentError("there is no variable 2, only 2"));
  EXPECT_EQ(gradients_.Check(0, b_),
            absl::InvalidArgumentError("variable \"a\": gradient has 4 "
                                       "elements, the variable 2"));
  ASSERT_EQ(gradients_.Check(0, a_), absl::OkStatus());
  gradients_.Take(0, a_);
  EXPECT_EQ(gradients_.Check(0, a_),
            absl::InvalidArgumentError(
                "the gradient of variable \"a\" was handed in before"));
}

TEST_F(GradientsTest, AreCompleteWhenAllVariablesAreThere) {
  EXPECT_EQ(gradients_.CheckComplete(),
            absl::FailedPreconditionError("the gradients of 2 of 2 trainable "
                                          "variables were not handed in"));
  gradients_.Take(1, b_);
  EXPECT_EQ(gradients_.CheckComplete(),
            absl::FailedPreconditionError("the gradients of 1 of 2 trainable "
                                          "variables were not handed in"));
  gradients_.Take(0, a_);
  EXPECT_EQ(gradients_.CheckComplete(), absl::OkStatus());
}

TEST_F(GradientsTest, AreSentFromWhereTheyLieAndLentUntilNobodyRefersToThem) {
  gradients_.Take(0, a_);
  gradients_.Take(1, b_);
  auto pieces = std::make_unique<std::vector<TensorPiece>>(
      gradients_.PiecesOf(generation_->placement.push.parts[0][0]));
  ASSERT_THAT(*pieces, SizeIs(3));
  // The last comes first, as in a backward pass.
  EXPECT_EQ((*pieces)[0].variable, "b");
  EXPECT_THAT(FloatsOf((*pieces)[0]), ElementsAre(5, 6));
  EXPECT_THAT(FloatsOf((*pieces)[1]), ElementsAre(3, 4));
  EXPECT_THAT(FloatsOf((*pieces)[2]), ElementsAre(1, 2));
  std::thread sender([&] { pieces.reset(); });
  gradients_.AwaitReturn();
  EXPECT_EQ(pieces, nullptr);
  sender.join();
}

}  // namespace
}  // namespace holdfast::client
