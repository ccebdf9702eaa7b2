// SPDX-License-Identifier: Apache-2.0
#include "worker/backend/cpu/blas_core.h"

#include <cblas.h>

#include <cstdlib>
#include <iostream>
#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(BlasCoreTest, ACpuThatOpenBlasDoesNotKnowGetsTheCodeOfItsVectors) {
  EXPECT_STREQ(BetterBlasCore("Prescott", Simd::kAvx512), "SKYLAKEX");
  EXPECT_STREQ(BetterBlasCore("Prescott", Simd::kAvx2), "HASWELL");
}

TEST(BlasCoreTest, OtherChoicesStand) {
  EXPECT_EQ(BetterBlasCore("Prescott", Simd::kPlain), nullptr);
  EXPECT_EQ(BetterBlasCore("Haswell", Simd::kAvx512), nullptr);
  EXPECT_EQ(BetterBlasCore("SkylakeX", Simd::kAvx512), nullptr);
}

TEST(BlasCoreTest, AProgramThatCannotBeRestartedSaysHowToBeFast) {
  const char* const before = std::getenv("OPENBLAS_CORETYPE");
  const std::string told = before == nullptr ? "" : before;
  char name[] = "none";
  char* argv[] = {name, nullptr};
  const absl::Status status =
      RestartWithBlasCore("HASWELL", testing::TempDir() + "/none", argv);
  EXPECT_EQ(std::getenv("OPENBLAS_CORETYPE"), nullptr);
  if (before != nullptr) setenv("OPENBLAS_CORETYPE", told.c_str(), 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("set OPENBLAS_CORETYPE=HASWELL in the environment"),
            HasSubstr("/none: No such file or directory")));
}

// Tests what main() did before the tests began.
TEST(BlasCoreTest, TheProgramRunsTheBetterCode) {
  if (const char* const told = std::getenv("OPENBLAS_CORETYPE")) {
    EXPECT_THAT(openblas_get_corename(), ::testing::StrCaseEq(told));
  } else {
    EXPECT_EQ(BetterBlasCore(openblas_get_corename(), BestSimd()), nullptr);
  }
}

}  // namespace
}  // namespace holdfast

int main(int argc, char** argv) {
  const absl::Status restarted = holdfast::RestartWithBetterBlasCore(argv);
  if (!restarted.ok()) std::cerr << restarted << std::endl;
  ::testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
