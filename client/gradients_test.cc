// SPDX-License-Identifier: Apache-2.0
#include "client/gradients.h"

#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "client/testing/generation_testing.h"
#include "common/rpc/rpc_limits.h"
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
                       generation_->placement.push, &generation_->encoder,
                       nullptr};
};

TEST_F(GradientsTest, WhatDoesNotFitIsRefused) {
  EXPECT_EQ(gradients_.Check(2, a_),
            absl::InvalidArgumentError("there is no variable 2, only 2"));
  EXPECT_EQ(gradients_.Check(0, b_),
            absl::InvalidArgumentError("variable \"a\": gradient has 4 "
                                       "elements, the variable 2"));
  ASSERT_EQ(gradients_.Check(0, a_), absl::OkStatus());
  ASSERT_EQ(gradients_.Take(0, a_), absl::OkStatus());
  EXPECT_EQ(gradients_.Check(0, a_),
            absl::InvalidArgumentError(
                "the gradient of variable \"a\" was handed in before"));
}

TEST_F(GradientsTest, AreCompleteWhenAllVariablesAreThere) {
  EXPECT_EQ(gradients_.CheckComplete(),
            absl::FailedPreconditionError("the gradients of 2 of 2 trainable "
                                          "variables were not handed in"));
  ASSERT_EQ(gradients_.Take(1, b_), absl::OkStatus());
  EXPECT_EQ(gradients_.CheckComplete(),
            absl::FailedPreconditionError("the gradients of 1 of 2 trainable "
                                          "variables were not handed in"));
  ASSERT_EQ(gradients_.Take(0, a_), absl::OkStatus());
  EXPECT_EQ(gradients_.CheckComplete(), absl::OkStatus());
}

TEST_F(GradientsTest, AreSentFromWhereTheyLieAndLentUntilNobodyRefersToThem) {
  ASSERT_EQ(gradients_.Take(0, a_), absl::OkStatus());
  ASSERT_EQ(gradients_.Take(1, b_), absl::OkStatus());
  auto pieces = std::make_unique<std::vector<TensorPiece>>(
      gradients_.PiecesOf(generation_->placement.push, 0, 0));
  ASSERT_THAT(*pieces, SizeIs(3));
  // The last variable comes first, as in a backward pass.
  EXPECT_EQ((*pieces)[0].variable, "b");
  EXPECT_THAT(FloatsOf((*pieces)[0]), ElementsAre(5, 6));
  EXPECT_THAT(FloatsOf((*pieces)[1]), ElementsAre(3, 4));
  EXPECT_THAT(FloatsOf((*pieces)[2]), ElementsAre(1, 2));
  std::thread sender([&] { pieces.reset(); });
  gradients_.AwaitReturn();
  EXPECT_EQ(pieces, nullptr);
  sender.join();
}

// "v" has just enough elements on ps 0, a neighbor, to be lent, and 4 elements
// on ps 1.
class LentGradientsTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kLent = kMinLentBytes / sizeof(float);

  static Layout MakeLayout() {
    proto::GetPlacementResponse placement;
    proto::Variable& variable =
        *placement.mutable_declaration()->add_variables();
    variable.set_name("v");
    variable.add_shape(kLent + 4);
    variable.set_dtype(proto::FLOAT32);
    for (const uint32_t ps : {0, 1}) {
      proto::Slice& slice = *placement.add_slices();
      slice.set_variable("v");
      slice.set_begin(ps == 0 ? 0 : kLent);
      slice.set_size(ps == 0 ? kLent : 4);
      slice.set_ps(ps);
    }
    return *Layout::Make(placement, 2);
  }

  TensorPiece PieceFor(uint32_t ps) const {
    return gradients_.PiecesOf(plan_, ps, 0).front();
  }
  static const void* PlaceOf(const TensorPiece& piece) {
    return piece.data.spans()[0].data;
  }

  const Layout layout_ = MakeLayout();
  const Plan plan_ = PlanPush(layout_, 1 << 20, {true, false});
  GradientEncoder encoder_{layout_, plan_};
  Neighbors neighbors_{{"ps 0", "ps 1"}};
  Gradients gradients_{PushSequence(1), layout_, plan_, &encoder_, &neighbors_};
};

TEST_F(LentGradientsTest, WhatIsLentIsCopiedAndTheRestSentFromWhereItLies) {
  std::vector<float> given(kLent + 4, 5);
  ASSERT_EQ(gradients_.Take(0, given), absl::OkStatus());
  TensorPiece lent = PieceFor(0);
  TensorPiece sent = PieceFor(1);
  EXPECT_EQ(lent.data.size(), kLent * sizeof(float));
  EXPECT_NE(PlaceOf(lent), given.data());
  EXPECT_EQ(*static_cast<const float*>(PlaceOf(lent)), 5);
  EXPECT_EQ(PlaceOf(sent), given.data() + kLent);
  // Readers of lent memory are not waited for.
  sent = TensorPiece();
  gradients_.AwaitReturn();
  given.assign(given.size(), 6);
  EXPECT_EQ(*static_cast<const float*>(PlaceOf(lent)), 5);
}

TEST_F(LentGradientsTest, WhatIsWrittenToItsMemoryIsNotCopied) {
  const absl::Span<float> memory = gradients_.Memory(0);
  ASSERT_EQ(memory.size(), kLent + 4);
  EXPECT_EQ(gradients_.Memory(0).data(), memory.data());
  ASSERT_EQ(gradients_.Take(0, memory), absl::OkStatus());
  EXPECT_EQ(PlaceOf(PieceFor(0)), memory.data());
  EXPECT_EQ(PlaceOf(PieceFor(1)), memory.data() + kLent);
  EXPECT_TRUE(gradients_.Memory(0).empty());
  EXPECT_TRUE(gradients_.Memory(1).empty());
}

}  // namespace
}  // namespace holdfast::client
