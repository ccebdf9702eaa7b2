// SPDX-License-Identifier: Apache-2.0

// Gradients and values that are sent with an encoding.

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/client_test_base.h"
#include "client/cluster.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::client {
namespace {

using ::testing::Each;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

// "b" is sent as BFLOAT16 in both directions.
class CompressedTest : public ClientTest {
 protected:
  void TearDown() override {
    push_.reset();
    cluster_.reset();
    StopPs();
  }

  void ConnectTo(int ps_count) {
    num_ps = ps_count;
    ps(0).place.Do([this](int, const auto&, auto* response) {
      AnswerPlacement(response);
      response->set_generation(generation);
      for (proto::Slice& slice : *response->mutable_slices()) {
        if (num_ps == 1) slice.set_ps(0);
      }
      proto::Declaration& declaration = *response->mutable_declaration();
      if (asynchronous) {
        declaration.mutable_consistency()->mutable_asynchronous();
      }
      proto::Compression& compression =
          *declaration.mutable_variables(1)->mutable_compression();
      compression.set_push(proto::BFLOAT16);
      compression.set_pull(proto::BFLOAT16);
      return absl::OkStatus();
    });
    cluster_ = ConnectReady();
    ASSERT_NE(cluster_, nullptr);
  }

  // Makes the next contributions get this verdict.
  void Answer(proto::Verdict verdict) {
    ps(0).contribute.Do([verdict](int, const auto& request, auto* response) {
      response->set_verdict(verdict);
      response->set_global_step(request.step() + 1);
      return absl::OkStatus();
    });
    ps(0).push_pull.Do([verdict](int, const auto& request, auto* response) {
      const absl::Status status = AnswerPushPull(request, 0, response);
      response->set_verdict(verdict);
      return status;
    });
  }

  // Pushes 1 + 2^-9 in each element, with so many examples.
  void Push(uint64_t examples) {
    const std::vector<float> a(6, kGradient);
    const std::vector<float> b(8, kGradient);
    if (asynchronous) {
      Parameters at;
      at.versions.assign(num_ps, GlobalStep(0));
      push_ = cluster_->StartPush(Take(cluster_.get()), at);
    } else {
      push_ = cluster_->StartPush(GlobalStep(0));
    }
    ASSERT_TRUE(push_->Add(0, a).ok());
    ASSERT_TRUE(push_->Add(1, b).ok());
    if (asynchronous) {
      ASSERT_TRUE(push_->Contribute({0, examples, 1.0f, 0.5}).ok());
      const auto applied = push_->Await(Late());
      EXPECT_TRUE(applied.ok()) << applied.status();
    } else {
      Contribution contribution;
      contribution.examples = examples;
      ASSERT_TRUE(push_->Contribute(contribution).ok());
      const auto outcome = push_->Await(Late());
      EXPECT_TRUE(outcome.ok()) << outcome.status();
    }
    push_.reset();
  }

  // The tensors of the last push that arrived at the first ps.
  std::vector<proto::TensorPart> LastTensors() {
    std::vector<proto::TensorPart> tensors;
    if (num_ps == 1) {
      const auto request = ps(0).push_pull.requests().back();
      tensors.assign(request.tensors().begin(), request.tensors().end());
    } else {
      const auto request = ps(0).push.requests().back();
      tensors.assign(request.tensors().begin(), request.tensors().end());
    }
    return tensors;
  }
  std::vector<uint16_t> LastOfB() {
    std::vector<uint16_t> halves;
    for (const proto::TensorPart& part : LastTensors()) {
      if (part.variable() != "b") continue;
      EXPECT_EQ(part.encoding(), proto::BFLOAT16);
      halves.resize(part.data().size() / 2);
      std::memcpy(halves.data(), part.data().data(), part.data().size());
    }
    EXPECT_FALSE(halves.empty());
    return halves;
  }

  // BFLOAT16 can represent 1 and 1 + 2^-7. The first two pushes that count send
  // 1, and leave 2^-9 and 2^-8; the third has 1 + 3 x 2^-9, which is nearer to
  // 1 + 2^-7.
  static constexpr float kGradient = 1 + 1.0f / 512;
  static constexpr uint16_t kOne = 0x3f80;
  static constexpr uint16_t kNext = 0x3f81;

  std::unique_ptr<Cluster> cluster_;
  std::unique_ptr<Cluster::Push> push_;
};

TEST_F(CompressedTest, GradientsAreSentAsDeclared) {
  ConnectTo(1);
  Push(8);
  size_t bytes_of_b = 0;
  for (const proto::TensorPart& part : LastTensors()) {
    const bool is_b = part.variable() == "b";
    EXPECT_EQ(part.encoding(), is_b ? proto::BFLOAT16 : proto::EXACT);
    if (is_b) bytes_of_b += part.data().size();
  }
  EXPECT_EQ(bytes_of_b, 16u);
}

// In one call if there is one ps, otherwise in several.
TEST_F(CompressedTest, WhatIsLeftOfPushesThatCountIsSent) {
  for (const int count : {1, 2}) {
    ConnectTo(count);
    for (int i = 0; i < 2; ++i) {
      Push(8);
      EXPECT_THAT(LastOfB(), Each(kOne));
    }
    Push(8);
    EXPECT_THAT(LastOfB(), Each(kNext));
  }
}

TEST_F(CompressedTest, WhatIsLeftOfOthersIsNot) {
  for (const int count : {1, 2}) {
    ConnectTo(count);
    Push(8);
    Answer(proto::STALE);
    Push(8);
    Answer(proto::ACCEPTED);
    Push(0);
    Push(8);
    EXPECT_THAT(LastOfB(), Each(kOne)) << count;
    Push(8);
    EXPECT_THAT(LastOfB(), Each(kNext)) << count;
  }
}

TEST_F(CompressedTest, WhatAShardFindsTooLateDoesNotCount) {
  ConnectTo(2);
  Push(8);
  ps(0).push.Do([](int, const auto&, auto* response) {
    response->set_verdict(proto::STALE);
    return absl::OkStatus();
  });
  Answer(proto::STALE);
  Push(8);
  ps(0).push.Do(nullptr);
  Answer(proto::ACCEPTED);
  Push(8);
  EXPECT_THAT(LastOfB(), Each(kOne));
}

TEST_F(CompressedTest, AppliedPushesCount) {
  for (const int count : {1, 2}) {
    asynchronous = true;
    ConnectTo(count);
    Push(8);
    Push(0);
    Push(8);
    EXPECT_THAT(LastOfB(), Each(kOne)) << count;
    Push(8);
    EXPECT_THAT(LastOfB(), Each(kNext)) << count;
  }
}

TEST_F(CompressedTest, ValuesArePulledAsDeclaredAndPinnedOnesAsTheyAre) {
  ConnectTo(2);
  const auto encoding_of_b = [&] {
    const proto::PullRequest request = ps(1).pull.requests().back();
    for (const proto::ReadRange& range : request.ranges()) {
      if (range.variable() == "b") return range.encoding();
    }
    return proto::TOP_K;
  };
  version = 1;
  Parameters values;
  ASSERT_TRUE(cluster_->StartPull(GlobalStep(1), &values)->Await(Late()).ok());
  EXPECT_EQ(encoding_of_b(), proto::BFLOAT16);
  EXPECT_EQ(values.Of(0), ValuesAt(1)[0]);
  // 1100 to 1107, in steps of 8.
  EXPECT_EQ(values.Of(1), std::vector<float>(8, 1104));

  for (const uint32_t i : {0, 1}) {
    ps(i).pin.Do([](int, const auto&, auto* response) {
      response->set_version(1);
      response->set_pin(1);
      return absl::OkStatus();
    });
  }
  auto pin = cluster_->PinVersion(absl::Seconds(7), Late());
  ASSERT_TRUE(pin.ok()) << pin.status();
  ASSERT_TRUE((*pin)->StartRead(&values)->Await(Late()).ok());
  EXPECT_EQ(encoding_of_b(), proto::EXACT);
  EXPECT_THAT(values.All(), ElementsAreArray(ValuesAt(1)));
}

TEST_F(CompressedTest, ValuesInAnotherEncodingAreAnError) {
  ConnectTo(1);
  ps(0).pull.Do([](int, const auto& request, auto* response) {
    proto::PullRequest exact = request;
    for (auto& range : *exact.mutable_ranges()) range.clear_encoding();
    return AnswerPull(exact, 1, response);
  });
  Parameters values;
  const absl::Status status =
      cluster_->StartPull(GlobalStep(1), &values)->Await(Late());
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr("of variable \"b\" were requested, but arrived in encoding "
                "0"));
}

}  // namespace
}  // namespace holdfast::client
