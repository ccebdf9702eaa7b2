// SPDX-License-Identifier: Apache-2.0
#include "common/base/status_macros.h"

#include <memory>
#include <utility>

#include "gtest/gtest.h"

namespace holdfast {
namespace {

absl::StatusOr<std::unique_ptr<int>> Half(int number) {
  if (number % 2 != 0) return absl::InvalidArgumentError("odd");
  return std::make_unique<int>(number / 2);
}

absl::Status CheckEven(int number) { return Half(number).status(); }

absl::StatusOr<int> Quarter(int number, int* reached) {
  HOLDFAST_RETURN_IF_ERROR(CheckEven(number));
  *reached = 1;
  HOLDFAST_ASSIGN_OR_RETURN(const std::unique_ptr<int> half, Half(number));
  *reached = 2;
  std::unique_ptr<int> quarter;
  HOLDFAST_ASSIGN_OR_RETURN(quarter, Half(*half));
  *reached = 3;
  return *quarter;
}

TEST(StatusMacrosTest, GoesOnWithTheValueOrReturnsTheError) {
  int reached = 0;
  EXPECT_EQ(Quarter(12, &reached).value(), 3);
  EXPECT_EQ(reached, 3);
  reached = 0;
  EXPECT_EQ(Quarter(7, &reached).status(), absl::InvalidArgumentError("odd"));
  EXPECT_EQ(reached, 0);
  EXPECT_EQ(Quarter(6, &reached).status(), absl::InvalidArgumentError("odd"));
  EXPECT_EQ(reached, 2);
}

TEST(StatusMacrosTest, AreOneStatementEach) {
  const auto check = [](bool asked) -> absl::Status {
    if (asked)
      HOLDFAST_RETURN_IF_ERROR(CheckEven(1));
    else
      HOLDFAST_RETURN_IF_ERROR(CheckEven(2));
    return absl::OkStatus();
  };
  EXPECT_FALSE(check(true).ok());
  EXPECT_TRUE(check(false).ok());
}

TEST(StatusMacrosTest, TakeExpressionsWithCommas) {
  const auto sum = []() -> absl::StatusOr<int> {
    HOLDFAST_ASSIGN_OR_RETURN(
        const auto both, absl::StatusOr<std::pair<int, int>>(std::pair(1, 2)));
    return both.first + both.second;
  };
  EXPECT_EQ(sum().value(), 3);
}

}  // namespace
}  // namespace holdfast
