// SPDX-License-Identifier: Apache-2.0

// Valid, wrong and nonsensical references to shared memory from a task of the
// same host (docs/protocol/same_host.md): each call must be answered, and the
// ps and the link must survive.
//
// The environment variable FUZZ_SEED selects other random calls.

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "common/rpc/rpc_limits.h"
#include "common/shared_memory/arena.h"
#include "common/shared_memory/board.h"
#include "gtest/gtest.h"
#include "tests/integration/same_host_testing.h"

namespace holdfast {
namespace {

constexpr int kCalls = 2000;

uint32_t Seed() {
  const char* const text = std::getenv("FUZZ_SEED");
  uint32_t seed;
  return text != nullptr && absl::SimpleAtoi(text, &seed) ? seed : 1;
}

class SharedPlacesTest : public SameHostTest {
 protected:
  uint64_t Number(uint64_t below) { return random_() % below; }
  template <typename T>
  T AnyOf(const std::vector<T>& choices) {
    return choices[Number(choices.size())];
  }

  // Most loans are ours and offered.
  void FillAnyLoan(proto::Loan* loan) {
    LoanId id;
    if (const auto offered = Number(4) > 0 ? board_->Offer() : std::nullopt) {
      id = *offered;
      offered_.push_back(id);
    } else {
      id = {AnyOf<uint32_t>({0, 1, 2, kBoardSlots - 1, kBoardSlots, ~0u}),
            AnyOf<uint64_t>({0, 1, 2, 3, uint64_t{1} << 62, ~uint64_t{0}})};
    }
    // Sometimes the same loan for two tensors.
    if (Number(8) == 0 && !offered_.empty()) id = AnyOf(offered_);
    FillLoan(id, loan);
    if (Number(8) == 0) {
      loan->set_link(AnyOf<uint64_t>({0, link_ - 1, link_ + 1, ~uint64_t{0}}));
    }
  }

  // Most places are in file 1.
  void FillAnyPlace(proto::SharedBytes* place) {
    place->set_file(Number(8) > 0 ? 1 : AnyOf<uint32_t>({0, 2, 7, ~0u}));
    place->set_offset(
        AnyOf<uint64_t>({0, 0, 0, 1, 4, kBytes - kMinLentBytes, kBytes - 4,
                         kBytes, kBytes + 1, uint64_t{1} << 63, ~uint64_t{0}}));
    place->set_size(AnyOf<uint64_t>(
        {0, 3, 4, kMinLentBytes, kMinLentBytes, kMinLentBytes + 1, kBytes / 2,
         kBytes, kBytes + 4, uint64_t{1} << 63, ~uint64_t{0}}));
    if (Number(8) > 0) FillAnyLoan(place->mutable_loan());
  }

  // Beginnings and sizes of ranges of "w", which may overlap.
  uint64_t AnyBegin() {
    return AnyOf<uint64_t>({0, 0, 1, kLeast, kElements - kLeast, kElements,
                            uint64_t{1} << 62, ~uint64_t{0}});
  }

  absl::Status PushAny() {
    proto::PushRequest request;
    *request.mutable_sender() = sender_;
    request.set_sequence(1);
    request.set_part(Number(3));
    request.set_num_parts(1 + Number(3));
    for (uint64_t i = 1 + Number(4); i > 0; --i) {
      proto::TensorPart& part = *request.add_tensors();
      part.set_variable("w");
      part.add_shape(kElements);
      part.set_dtype(proto::FLOAT32);
      part.set_begin(AnyBegin());
      FillAnyPlace(part.mutable_shared());
      if (Number(10) == 0) part.set_data("both");
    }
    proto::PushResponse response;
    return Call(shard_.get(), &Shard::Push, request, &response);
  }

  absl::Status PullAny() {
    proto::PullRequest request;
    *request.mutable_sender() = sender_;
    for (uint64_t i = 1 + Number(4); i > 0; --i) {
      proto::ReadRange& range = *request.add_ranges();
      range.set_variable("w");
      range.set_begin(AnyBegin());
      range.set_size(AnyOf<uint64_t>(
          {0, 1, kLeast, kLeast, kElements / 2, kElements, ~uint64_t{0}}));
      if (Number(8) > 0) FillAnyLoan(range.mutable_loan());
    }
    proto::PullResponse response;
    absl::Status status = Call(shard_.get(), &Shard::Pull, request, &response);
    for (const proto::TensorPart& part : response.tensors()) {
      num_lent_ += part.has_shared() ? 1 : 0;
    }
    return status;
  }

  std::mt19937_64 random_{Seed()};
  // The loans of the call under way.
  std::vector<LoanId> offered_;
  int num_lent_ = 0;
};

TEST_F(SharedPlacesTest, WhateverIsSaidOfThemIsAnswered) {
  if (!SharedArena::HugePagesWork()) GTEST_SKIP() << "no huge pages";
  SetUpJob(/*same_host=*/true);
  MakeLink();
  const auto region = MakeRegion();
  std::map<std::string, int> codes;
  for (int i = 0; i < kCalls; ++i) {
    const bool pushes = Number(2) == 0;
    const absl::Status status = pushes ? PushAny() : PullAny();
    ++codes[absl::StatusCodeToString(status.code())];
    EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status) ||
                absl::IsOutOfRange(status) ||
                // There are no such elements.
                absl::IsNotFound(status) ||
                // The loan is not offered, or the link is not ours.
                absl::IsUnavailable(status))
        << "call " << i << " of seed " << Seed() << ": " << status;
    // As a client does when its call has ended: memory that the ps has borrowed
    // for a gradient stays with the ps until it returns it.
    for (const LoanId loan : std::exchange(offered_, {})) {
      if (!pushes) {
        board_->Return(loan);
      } else if (!board_->Withdraw(loan) && board_->IsOver(loan)) {
        board_->Forget(loan);
      }
    }
    if (HasFailure()) return;
  }
  std::cout << "seed " << Seed() << ":";
  for (const auto& [code, count] : codes) {
    std::cout << " " << code << " " << count;
  }
  std::cout << "; lent " << num_lent_ << std::endl;
  EXPECT_GT(codes["OK"], 0);
  EXPECT_GT(codes["INVALID_ARGUMENT"], 0);
  EXPECT_GT(codes["UNAVAILABLE"], 0);
  EXPECT_GT(num_lent_, 0);

  // Nothing was applied, and the link is unchanged.
  const auto pulled = Pull(Range(kElements, *board_->Offer()));
  ASSERT_TRUE(pulled.ok()) << pulled.status();
  ASSERT_TRUE(pulled->tensors(0).has_shared());
  EXPECT_EQ(Ends(pulled->tensors(0)), std::pair(10.0f, 10.0f));
}

// When a link ends, its loans of values are over, and gradients that the ps has
// borrowed stay where it has mapped them.
TEST_F(SharedPlacesTest, ALinkThatEndsInBetweenTakesNothingFromThePs) {
  if (!SharedArena::HugePagesWork()) GTEST_SKIP() << "no huge pages";
  SetUpJob(/*same_host=*/true);
  MakeLink();
  auto region = MakeRegion();
  auto* const gradient = reinterpret_cast<float*>(region->data());
  for (uint64_t i = 0; i < kElements; ++i) gradient[i] = 3;
  proto::PushRequest request;
  *request.mutable_sender() = sender_;
  request.set_sequence(1);
  request.set_num_parts(1);
  proto::TensorPart& part = *request.add_tensors();
  part.set_variable("w");
  part.add_shape(kElements);
  part.set_dtype(proto::FLOAT32);
  part.mutable_shared()->set_file(1);
  part.mutable_shared()->set_size(kBytes);
  FillLoan(*board_->Offer(), part.mutable_shared()->mutable_loan());
  proto::PushResponse held;
  ASSERT_EQ(Call(shard_.get(), &Shard::Push, request, &held), absl::OkStatus());
  ASSERT_NE(held.receipt(), 0u);
  region.reset();
  socket_.reset();
  board_.reset();

  proto::ContributeRequest offer;
  *offer.mutable_sender() = sender_;
  offer.set_sequence(1);
  offer.set_examples(8);
  offer.add_receipts(held.receipt());
  offer.set_wait_ms(kLong);
  proto::ContributeResponse verdict;
  ASSERT_EQ(Call(coordinator_.get(), &Coordinator::Contribute, offer, &verdict),
            absl::OkStatus());
  EXPECT_EQ(verdict.verdict(), proto::ACCEPTED);
  proto::PullRequest pull;
  *pull.mutable_sender() = sender_;
  pull.set_min_version(1);
  pull.set_wait_ms(kLong);
  pull.add_ranges()->set_variable("w");
  pull.mutable_ranges(0)->set_begin(kElements - 1);
  pull.mutable_ranges(0)->set_size(1);
  proto::PullResponse pulled;
  ASSERT_EQ(Call(shard_.get(), &Shard::Pull, pull, &pulled), absl::OkStatus());
  ASSERT_EQ(pulled.tensors_size(), 1);
  float last;
  ASSERT_EQ(pulled.tensors(0).data().size(), sizeof(last));
  std::memcpy(&last, pulled.tensors(0).data().data(), sizeof(last));
  EXPECT_EQ(last, 7);
}

}  // namespace
}  // namespace holdfast
