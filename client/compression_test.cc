// SPDX-License-Identifier: Apache-2.0
#include "client/compression.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::client {
namespace {

using ::testing::ElementsAre;
using ::testing::Key;

// "v0" [20] in parts of 8 elements, TOP_K of half; "v1" [3], EXACT; "v2" [1],
// INT8; "v3" [4], INT8, not trainable.
struct Model {
  Model() : layout(MakeLayout()), plan(PlanPush(layout, 8 * sizeof(float))) {}

  static Layout MakeLayout() {
    proto::GetPlacementResponse placement;
    const auto add = [&](int64_t size, proto::Encoding encoding) {
      proto::Variable& variable =
          *placement.mutable_declaration()->add_variables();
      variable.set_name(
          absl::StrCat("v", placement.declaration().variables_size() - 1));
      variable.add_shape(size);
      variable.set_dtype(proto::FLOAT32);
      variable.mutable_compression()->set_push(encoding);
      proto::Slice& slice = *placement.add_slices();
      slice.set_variable(variable.name());
      slice.set_size(size);
    };
    add(20, proto::TOP_K);
    add(3, proto::EXACT);
    add(1, proto::INT8);
    add(4, proto::INT8);
    auto* const variables =
        placement.mutable_declaration()->mutable_variables();
    variables->Mutable(0)->mutable_compression()->set_top_k(0.25);
    variables->Mutable(3)->set_trainable(false);
    return *Layout::Make(placement, 1);
  }

  const Layout layout;
  const Plan plan;
};

// Twenty elements: `values`, followed by zeros.
std::vector<float> Gradient(std::vector<float> values) {
  values.resize(20);
  return values;
}

// What is kept of "v0".
std::vector<float> Decoded(const GradientEncoder::Encoded& encoded) {
  std::vector<float> values(20);
  for (const auto& [begin, elements] : encoded) {
    Decode(elements, 0, absl::MakeSpan(values).subspan(begin, elements.size));
  }
  return values;
}

std::vector<std::string> Bytes(const GradientEncoder::Encoded& encoded) {
  std::vector<std::string> all;
  for (const auto& [begin, elements] : encoded) {
    std::string& bytes = all.emplace_back(elements.data.size(), '\0');
    elements.data.CopyTo(&bytes[0]);
  }
  return all;
}

class GradientEncoderTest : public ::testing::Test {
 protected:
  std::vector<float> Send(uint64_t push, const std::vector<float>& values) {
    return Decoded(encoder_.Encode(PushSequence(push), 0, Gradient(values)));
  }
  // A gradient of zeros adds nothing to the residual.
  std::vector<float> Rest(uint64_t push) { return Send(push, {}); }

  const Model model_;
  GradientEncoder encoder_{model_.layout, model_.plan};
};

TEST_F(GradientEncoderTest, EncodesWhatIsDeclaredAndTrained) {
  EXPECT_TRUE(encoder_.Encodes(0));
  EXPECT_FALSE(encoder_.Encodes(1));
  EXPECT_TRUE(encoder_.Encodes(2));
  EXPECT_FALSE(encoder_.Encodes(3));
}

TEST_F(GradientEncoderTest, ByRangesOfThePlan) {
  std::vector<float> gradient(20);
  for (size_t i = 0; i < 20; ++i) gradient[i] = static_cast<float>(i + 1);
  const auto encoded = encoder_.Encode(PushSequence(1), 0, gradient);
  EXPECT_THAT(encoded, ElementsAre(Key(0), Key(8), Key(16)));
  for (const auto& [begin, elements] : encoded) {
    EXPECT_EQ(elements.encoding, proto::TOP_K);
    EXPECT_EQ(elements.size, begin == 16 ? 4 : 8);
    EXPECT_EQ(KeptElements(elements), begin == 16 ? 1 : 2);
  }
  std::vector<float> sent(20);
  for (const size_t i : {6, 7, 14, 15, 19}) sent[i] = gradient[i];
  EXPECT_EQ(Decoded(encoded), sent);
}

TEST_F(GradientEncoderTest, ExactWhereThatIsNoLonger) {
  const float kThird = 1.0f / 3;
  const auto encoded =
      encoder_.Encode(PushSequence(1), 2, absl::MakeConstSpan(&kThird, 1));
  ASSERT_THAT(encoded, ElementsAre(Key(0)));
  EXPECT_EQ(encoded.at(0).encoding, proto::EXACT);
  EXPECT_EQ(encoded.at(0).data.size(), 4u);
}

TEST_F(GradientEncoderTest, WhatIsLeftGoesWithTheNext) {
  EXPECT_EQ(Send(1, {1, 2, 3, 4}), Gradient({0, 0, 3, 4}));
  encoder_.Settle(PushSequence(1), true);
  EXPECT_EQ(Send(2, {1, 1, 1}), Gradient({2, 3, 0}));
  encoder_.Settle(PushSequence(2), true);
  EXPECT_EQ(Rest(3), Gradient({0, 0, 1}));
}

TEST_F(GradientEncoderTest, APushThatDoesNotCountHasNeverBeen) {
  Send(1, {1, 2, 3, 4});
  encoder_.Settle(PushSequence(1), true);
  Send(2, {100, 100, 1e-7f, 1e-7f});
  encoder_.Settle(PushSequence(2), false);
  encoder_.Settle(PushSequence(2), true);  // the first call counts
  EXPECT_EQ(Rest(3), Gradient({1, 2}));
  encoder_.Settle(PushSequence(3), false);
  EXPECT_EQ(Rest(4), Gradient({1, 2}));
}

TEST_F(GradientEncoderTest, AnEarlierPushIsUndoneUnderLaterOnes) {
  Send(1, {1, 2, 8, 8});                    // leaves 1, 2
  Send(2, {0, 0, 16, 16});                  // leaves 1, 2
  Send(3, {0, 0, 32, 32, 4});               // leaves 1, 2, 0, 0, 4
  encoder_.Settle(PushSequence(1), false);  // 0, 0, 0, 0, 4
  encoder_.Settle(PushSequence(3), false);  // 0
  EXPECT_EQ(Send(4, {5, 6, 7}), Gradient({0, 6, 7}));
  encoder_.Settle(PushSequence(2), true);
  encoder_.Settle(PushSequence(4), true);
  EXPECT_EQ(Rest(5), Gradient({5}));
}

TEST_F(GradientEncoderTest, TheSamePushAgainHasTheSameBytes) {
  Send(1, {1, 2, 3, 4});
  const std::vector<float> gradient = Gradient({5, 5, 5});
  const auto first = encoder_.Encode(PushSequence(2), 0, gradient);
  EXPECT_EQ(Bytes(encoder_.Encode(PushSequence(2), 0, gradient)), Bytes(first));
  Send(3, {9, 9, 9, 9});
  EXPECT_EQ(Bytes(encoder_.Encode(PushSequence(2), 0, gradient)), Bytes(first));
  // And is one push: 1, 2 and 5, 5, 5 and 9, 9, 9, 9, of which six were sent.
  EXPECT_EQ(Decoded(first), Gradient({6, 7}));
  encoder_.Settle(PushSequence(3), false);
  EXPECT_EQ(Rest(4), Gradient({0, 0, 5}));
}

TEST_F(GradientEncoderTest, WhatIsForgottenCounts) {
  Send(1, {1, 2, 8, 8});
  Send(2, {1, 1, 8, 8});
  encoder_.Forget(PushSequence(1));
  encoder_.Settle(PushSequence(1), false);  // too late
  encoder_.Settle(PushSequence(2), false);
  EXPECT_EQ(Rest(3), Gradient({1, 2}));
}

}  // namespace
}  // namespace holdfast::client
