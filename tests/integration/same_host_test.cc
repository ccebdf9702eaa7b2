// SPDX-License-Identifier: Apache-2.0

// Tensors in shared memory, with a real ps: a pull is answered with a location,
// and a push names one, of tensors that exceed any message
// (docs/protocol/same_host.md).

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "common/rpc/rpc_limits.h"
#include "common/shared_memory/arena.h"
#include "common/shared_memory/board.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/same_host_testing.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;

TEST_F(SameHostTest, IsRefusedWhereItIsOff) {
  SetUpJob(/*same_host=*/false);
  EXPECT_THAT(AskForLink().refusal(), HasSubstr("--same_host=off"));
  const auto pulled = Pull(Range(kLeast, {1, 1}));
  ASSERT_TRUE(pulled.ok()) << pulled.status();
  EXPECT_EQ(pulled->tensors(0).data().size(), kMinLentBytes);
  const auto all = Pull(Range(kElements, {1, 1}));
  EXPECT_TRUE(absl::IsOutOfRange(all.status())) << all.status();
}

TEST_F(SameHostTest, AnotherKernelIsRefused) {
  if (!SharedArena::HugePagesWork()) GTEST_SKIP() << "no huge pages";
  SetUpJob(/*same_host=*/true);
  proto::LinkRequest request;
  *request.mutable_sender() = sender_;
  request.set_boot_id("another");
  proto::LinkResponse response;
  ASSERT_EQ(Call(shard_.get(), &Shard::Link, request, &response),
            absl::OkStatus());
  EXPECT_NE(response.refusal(), "");
}

TEST_F(SameHostTest, MoreThanAMessageIsPulledAndPushedInPlace) {
  if (!SharedArena::HugePagesWork()) GTEST_SKIP() << "no huge pages";
  SetUpJob(/*same_host=*/true);
  MakeLink();
  const LoanId read = *board_->Offer();
  const auto pulled = Pull(Range(kElements, read));
  ASSERT_TRUE(pulled.ok()) << pulled.status();
  ASSERT_EQ(pulled->tensors_size(), 1);
  ASSERT_TRUE(pulled->tensors(0).has_shared());
  EXPECT_EQ(pulled->tensors(0).shared().size(), kBytes);
  EXPECT_EQ(Ends(pulled->tensors(0)), std::pair(10.0f, 10.0f));

  // The gradient is 3, so w becomes 7.
  const auto region = MakeRegion();
  auto* const gradient = reinterpret_cast<float*>(region->data());
  for (uint64_t i = 0; i < kElements; ++i) gradient[i] = 3;
  proto::PushPullRequest push;
  *push.mutable_sender() = sender_;
  push.set_sequence(1);
  push.set_wait_ms(kLong);
  push.mutable_contribution()->set_examples(8);
  const LoanId pushed = *board_->Offer();
  proto::TensorPart& part = *push.add_tensors();
  part.set_variable("w");
  part.add_shape(kElements);
  part.set_dtype(proto::FLOAT32);
  part.mutable_shared()->set_file(1);
  part.mutable_shared()->set_size(kBytes);
  FillLoan(pushed, part.mutable_shared()->mutable_loan());
  *push.add_ranges() = Range(kElements, *board_->Offer());
  proto::PushPullResponse response;
  ASSERT_EQ(Call(shard_.get(), &Shard::PushPull, push, &response),
            absl::OkStatus());
  EXPECT_EQ(response.verdict(), proto::ACCEPTED);
  ASSERT_EQ(response.tensors_size(), 1);
  ASSERT_TRUE(response.tensors(0).has_shared());
  EXPECT_EQ(Ends(response.tensors(0)), std::pair(7.0f, 7.0f));
  // The push is applied, so its loan is over.
  EXPECT_TRUE(board_->IsOver(pushed));
  // The lent values are unchanged.
  EXPECT_EQ(Ends(pulled->tensors(0)), std::pair(10.0f, 10.0f));
}

TEST_F(SameHostTest, WhatCannotBeLentIsSentOrHasToBeAskedForInParts) {
  SetUpJob(/*same_host=*/true);
  if (!SharedArena::HugePagesWork()) GTEST_SKIP() << "no huge pages";
  MakeLink();
  const LoanId withdrawn = *board_->Offer();
  ASSERT_TRUE(board_->Withdraw(withdrawn));
  const auto pulled = Pull(Range(kLeast, withdrawn));
  ASSERT_TRUE(pulled.ok()) << pulled.status();
  EXPECT_FALSE(pulled->tensors(0).has_shared());
  EXPECT_EQ(pulled->tensors(0).data().size(), kMinLentBytes);
  const auto all = Pull(Range(kElements, withdrawn));
  EXPECT_TRUE(absl::IsOutOfRange(all.status())) << all.status();
  EXPECT_THAT(std::string(all.status().message()), HasSubstr("lent"));
  proto::ReadRange without = Range(kElements, withdrawn);
  without.clear_loan();
  const auto too_large = Pull(without);
  EXPECT_TRUE(absl::IsInvalidArgument(too_large.status()))
      << too_large.status();
}

}  // namespace
}  // namespace holdfast
