// SPDX-License-Identifier: Apache-2.0
#include "common/process/exit_code.h"

#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;

TEST(ExitCodeTest, AreInTheTable) {
  std::ifstream file("docs/operating/exit_codes.md");
  const std::string table(std::istreambuf_iterator<char>(file), {});
  for (const int code :
       {kExitDone, kExitFailed, kExitUsage, kExitInterrupted, kExitRestart,
        ExitCodeOfSignal(9), ExitCodeOfSignal(15)}) {
    EXPECT_THAT(table, HasSubstr(absl::StrCat("\n| ", code, " |")));
  }
}

TEST(ExitCodeTest, OfErrors) {
  EXPECT_EQ(ExitCodeOfStart(absl::UnavailableError("")), kExitRestart);
  EXPECT_EQ(ExitCodeOfStart(absl::AlreadyExistsError("")), kExitRestart);
  EXPECT_EQ(ExitCodeOfStart(absl::InvalidArgumentError("")), kExitUsage);
  EXPECT_EQ(ExitCodeOfJoin(absl::UnavailableError("")), kExitRestart);
  EXPECT_EQ(ExitCodeOfJoin(absl::CancelledError("")), kExitRestart);
  EXPECT_EQ(ExitCodeOfJoin(absl::AlreadyExistsError("")), kExitUsage);
  EXPECT_EQ(ExitCodeOfJoin(absl::FailedPreconditionError("")), kExitUsage);
  EXPECT_EQ(ExitCodeOfJoin(absl::AbortedError("")), kExitFailed);
}

}  // namespace
}  // namespace holdfast
