// SPDX-License-Identifier: Apache-2.0
#include "common/process/text_log.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

TEST(TextLogTest, IsPrintable) {
  google::InitGoogleLogging("text_log_test");
  StartTextLog();
  ::testing::internal::CaptureStderr();
  LOG(WARNING) << "worker \033]0;title\a\xe9\n  left";
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::MatchesRegex("W[0-9]+ .* text_log_test.cc:[0-9]+\\] "
                                      "worker \\?\\]0;title\\?\\?\n  left\n"));
}

}  // namespace
}  // namespace holdfast
