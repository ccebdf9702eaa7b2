// SPDX-License-Identifier: Apache-2.0
#include "worker/backend/cpu/blas_core.h"

#include <cblas.h>

#include <cstdlib>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

TEST(BlasCoreTest, ACpuThatOpenBlasDoesNotKnowGetsTheCodeOfItsVectors) {
  EXPECT_STREQ(BetterBlasCore("Prescott", Simd::kAvx512), "SKYLAKEX");
  EXPECT_STREQ(BetterBlasCore("Prescott", Simd::kAvx2), "HASWELL");
}

TEST(BlasCoreTest, OtherChoicesStand) {
  EXPECT_EQ(BetterBlasCore("Prescott", Simd::kPlain), nullptr);
  EXPECT_EQ(BetterBlasCore("Haswell", Simd::kAvx512), nullptr);
  EXPECT_EQ(BetterBlasCore("SkylakeX", Simd::kAvx512), nullptr);
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
  holdfast::RestartWithBetterBlasCore(argv);
  ::testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
